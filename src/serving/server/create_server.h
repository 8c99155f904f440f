// SPDX-License-Identifier: Apache-2.0
// How a server comes to be.
#pragma once

#include <memory>

#include "inflight/status.h"
#include "serving/repository/engine_loader.h"
#include "serving/repository/server_options.h"
#include "serving/server/server.h"

namespace inflight::serving {

// Loads everything; logs a line per model. An error says which model and why.
Result<std::unique_ptr<Server>> CreateServer(const ServerOptions& options);

// CreateServer with another way to executors.
Result<std::unique_ptr<Server>> CreateServerWith(const ServerOptions& options, EngineLoader load);

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
// How a server comes to be.
#pragma once

#include <memory>

#include "inflight/status.h"
#include "serving/repository/engine_loader.h"
#include "serving/repository/server_options.h"
#include "serving/server/server.h"

namespace inflight::serving {

// A server whose ports may open before its models are there. Until LoadAtStart has succeeded it is
// live and not ready, has no models, and refuses requests: kUnavailable of the reason kLoading.
class LoadableServer : public Server {
 public:
  // Loads everything; logs a line per model. An error says which model and why. Once, on any
  // thread; BeginExit of another thread gives up transfers, and else the load goes on.
  virtual Status LoadAtStart() = 0;
};
Result<std::unique_ptr<LoadableServer>> CreateEmptyServer(const ServerOptions& options);

// The same with models.
Result<std::unique_ptr<Server>> CreateServer(const ServerOptions& options);

// Both with another way to executors.
std::unique_ptr<LoadableServer> CreateEmptyServerWith(const ServerOptions& options,
                                                      EngineLoader load);
Result<std::unique_ptr<Server>> CreateServerWith(const ServerOptions& options, EngineLoader load);

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
// What every model gets between its load and its first request.
#pragma once

#include <string>

#include "inflight/status.h"
#include "serving/core/model.h"
#include "serving/repository/candidate.h"
#include "serving/repository/server_options.h"

namespace inflight::serving {

// Labels, cache and statistics, then its warm-up.
Status PrepareModel(const Candidate& candidate, const ServerOptions& options,
                    const std::string& name_space, Model& model);

}  // namespace inflight::serving

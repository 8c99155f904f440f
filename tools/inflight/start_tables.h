// SPDX-License-Identifier: Apache-2.0
// What serve says of itself when it starts: a banner, and tables in the log
// (docs/operations.md, "The log"). That of the models comes from those who load them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "serve_options.h"
#include "serving/repository/server_options.h"
#include "serving/server/server.h"

namespace inflight::tool {

// Settings by backend and key, of --backend-config=<backend>,<key>=<value>; "" is all backends.
// None has an effect: they steer other programs than ours. kInvalidArgument: not of that form.
using BackendSettings = std::map<std::string, std::map<std::string, std::string>>;
Result<BackendSettings> ParseBackendConfig(const std::vector<std::string>& words);

void LogBanner();
void LogBackends(const BackendSettings& settings);
void LogOptions(const ServeOptions& options, const serving::ServerMetadata& metadata);

}  // namespace inflight::tool

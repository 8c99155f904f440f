// SPDX-License-Identifier: Apache-2.0
// Who can reach the ports, and what the log says of it at the start.
#pragma once

#include <string>

#include "serve_options.h"

namespace inflight::tool {

// Where the metrics page is served: at HTTP's address unless an option says otherwise.
const std::string& MetricsAddress(const ServeOptions& options);

// Of --admin-port: this machine's unless an option says otherwise.
std::string AdminAddress(const ServeOptions& options);

// "the port of --admin-port", "the socket of --admin-socket" or both; empty where administration
// has no place of its own.
std::string AdminPlace(const ServeOptions& options);

void LogReach(const ServeOptions& options);

}  // namespace inflight::tool

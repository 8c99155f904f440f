// SPDX-License-Identifier: Apache-2.0
// The request log: a line for each request that has ended, of numbers and names, never of texts or
// keys (docs/operations.md, "The request log").
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/request_tally.h"

namespace inflight {

// Of one request, from its first byte to its end.
struct LoggedRequest {
  std::string method;      // "GET"; of gRPC "gRPC"
  std::string path;        // without its query
  std::string client;      // its address
  int64_t started_ns = 0;  // monotonic clock
  std::shared_ptr<RequestTally> tally = std::make_shared<RequestTally>();
};

// `status` is HTTP's, 499 where the client went before its answer was complete, or gRPC's code.
// Lines of requests that failed, or that no model answered, are bounded as those of the rest of the
// log are: strangers can cause them.
void LogRequest(const LoggedRequest& request, int status, bool has_failed);

}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
// GET /metrics on a port of its own (spec/triton-protocol.md 4.1).
#pragma once

#include <chrono>
#include <memory>

#include "protocol/http_listener/http_listener.h"
#include "protocol/metrics/metrics_page.h"
#include "serving/server.h"

namespace inflight::metrics {

struct MetricsOptions {
  http_listener::ListenerOptions listener{
      .name = "metrics", .port = 8002, .threads = 1, .max_connections = 256};
  PageOptions page;
};

class MetricsServer {
 public:
  // Listens and serves at once. `server` must outlive the MetricsServer.
  static Result<std::unique_ptr<MetricsServer>> Start(const serving::Server& server,
                                                      MetricsOptions options);

  virtual ~MetricsServer() = default;  // Stop(0)

  virtual int port() const = 0;

  // Stops accepting, lets running requests finish for `drain`. Blocks until done.
  virtual void Stop(std::chrono::milliseconds drain) = 0;
};

}  // namespace inflight::metrics

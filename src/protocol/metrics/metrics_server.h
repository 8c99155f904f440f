// SPDX-License-Identifier: Apache-2.0
// GET /metrics on a port of its own (docs/metrics.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "protocol/http_listener/listening_server.h"
#include "protocol/metrics/machine.h"
#include "protocol/metrics/metrics_page.h"
#include "serving/server/server.h"

namespace inflight::metrics {

struct MetricsOptions {
  http_listener::ListenerOptions listener{.name = "metrics",
                                          .port = 8002,
                                          .threads = 1,
                                          .max_connections = 256,
                                          .tls = {.port = "metrics"}};
  PageOptions page;
  MachineOptions machine;
  // The answer to a request that may not read the page; null: any may.
  std::function<std::optional<http_listener::HttpResponse>(http_listener::HttpRequest&)> admit;
  // Whether a request that may sees what was found in the KV cache; null: any does.
  std::function<bool(const http_listener::HttpRequest&)> sees_reuse;
};

class MetricsServer : public http_listener::ListeningServer {
 public:
  // Listens and serves at once. `server` must outlive the MetricsServer.
  static Result<std::unique_ptr<MetricsServer>> Start(const serving::Server& server,
                                                      const MetricsOptions& options);

  // What a GET of the page would answer now, with what was found in the KV cache or without. Any
  // thread.
  std::string Page(bool with_reuse) const;

 private:
  class Handler;
  MetricsServer(std::unique_ptr<Handler> handler, const Handler& same);

  const Handler& handler_;  // that of the base
};

}  // namespace inflight::metrics

// SPDX-License-Identifier: Apache-2.0
// KServe v2 with Triton's extensions over HTTP: health, metadata, configuration, statistics, index,
// infer, generate, generate_stream (docs/reference/protocol/http.md).
#pragma once

#include <memory>
#include <vector>

#include "protocol/http_listener/listening_server.h"
#include "protocol/http_listener/path_handler.h"
#include "protocol/kserve/http/endpoint_handler.h"
#include "serving/server/server.h"

namespace inflight::kserve_http {

struct HttpOptions {
  http_listener::ListenerOptions listener{.name = "HTTP", .port = 8000};
  EndpointOptions endpoints;
};

// What answers the requests, without a listener. `server` must outlive it.
std::unique_ptr<http_listener::HttpHandler> MakeHandler(serving::Server& server,
                                                        const EndpointOptions& options);

class HttpServer : public http_listener::ListeningServer {
 public:
  // Listens and serves at once. `server` must outlive the HttpServer. Stop cancels the requests
  // that outlast its time.
  // `beside` answer what they serve in place of KServe, the last of them first; one may be null.
  static Result<std::unique_ptr<HttpServer>> Start(
      serving::Server& server, const HttpOptions& options,
      std::vector<std::unique_ptr<http_listener::PathHandler>> beside = {});

 private:
  using ListeningServer::ListeningServer;
};

}  // namespace inflight::kserve_http

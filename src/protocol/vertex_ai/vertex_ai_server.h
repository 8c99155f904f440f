// SPDX-License-Identifier: Apache-2.0
// The front end for Vertex AI (docs/reference/protocol/vertex-ai.md): two routes that the platform
// chooses, one for health, one for predictions of the default model; a header redirects a
// prediction to another endpoint.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "protocol/http_listener/listening_server.h"
#include "protocol/kserve/http/endpoint_handler.h"
#include "serving/server/server.h"

namespace inflight::vertex_ai {

struct VertexAiOptions {
  http_listener::ListenerOptions listener{.name = "Vertex AI", .port = 8080};
  kserve_http::EndpointOptions endpoints;  // its framing is the platform's, whatever it says
  std::string health_route;                // AIP_HEALTH_ROUTE
  std::string predict_route;               // AIP_PREDICT_ROUTE
  std::string default_model;               // empty: the only ready one
  // The text of the metrics page; null where there is none.
  std::function<std::string(bool with_reuse)> metrics_page;
};

// The handler alone, of whoever has connections of their own. Errors as of Start.
Result<std::unique_ptr<http_listener::HttpHandler>> MakeHandler(serving::Server& server,
                                                                VertexAiOptions options);

class VertexAiServer : public http_listener::ListeningServer {
 public:
  // As kserve_http::HttpServer::Start. kInvalidArgument without routes, without a default model
  // among several, and for one that is not loaded.
  static Result<std::unique_ptr<VertexAiServer>> Start(serving::Server& server,
                                                       VertexAiOptions options);

 private:
  using ListeningServer::ListeningServer;
};

}  // namespace inflight::vertex_ai

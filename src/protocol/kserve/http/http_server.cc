// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/http_server.h"

#include <optional>
#include <utility>

#include "protocol/kserve/http/response.h"
#include "protocol/kserve/http/route.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

std::string_view LabelOf405(const Route& route) {
  const bool is_text = route.endpoint == Endpoint::kInfer || route.endpoint == Endpoint::kLive ||
                       route.endpoint == Endpoint::kReady ||
                       route.endpoint == Endpoint::kModelReady;
  return is_text ? kText : kJson;
}

// An endpoint for each path.
class Handler : public EndpointHandler {
 public:
  using EndpointHandler::EndpointHandler;

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    auto route = FindEndpoint(request);
    if (!route) return responder->Send(Error(NotFound("Not Found"), kText));
    if (auto refusal = Refusal(ApiOf(route->endpoint), request)) return responder->Send(*refusal);
    if (!AllowsMethod(route->endpoint, request.method)) {
      return responder->Send(MethodNotAllowed(LabelOf405(*route)));
    }
    Run(*std::move(route), std::move(request), std::move(responder));
  }

 private:
  std::optional<Route> FindEndpoint(const HttpRequest& head) const override {
    return FindRoute(head.path());
  }
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(serving::Server& server,
                                                      HttpOptions options) {
  if (options.endpoints.max_input_bytes == 0) {
    return InvalidArgument("--http-max-input-size: got 0, should be at least 1 byte");
  }
  std::unique_ptr<HttpServer> http_server(
      new HttpServer(std::make_unique<Handler>(server, options.endpoints)));
  RETURN_IF_ERROR(http_server->Listen(options.listener));
  return http_server;
}

}  // namespace inflight::kserve_http

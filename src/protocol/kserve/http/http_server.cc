// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/http_server.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "protocol/http_listener/cross_origin.h"
#include "protocol/http_listener/router.h"
#include "protocol/kserve/http/endpoint_table.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

// As Triton's log has it at a verbose level: `HTTP request: 2 /v2/models/m/infer`, the method by
// its number in libevhtp.
void LogRequest(std::string_view what, const HttpRequest& request, std::string_view end = "") {
  constexpr std::array<std::string_view, 9> kMethods = {"GET",   "HEAD", "POST", "PUT",    "DELETE",
                                                        "MKCOL", "COPY", "MOVE", "OPTIONS"};
  constexpr int kOther = 16;
  const auto* found = std::find(kMethods.begin(), kMethods.end(), request.method);
  const int number = found == kMethods.end() ? kOther : static_cast<int>(found - kMethods.begin());
  std::string line(what);
  line.append(": ").append(std::to_string(number)).append(" ").append(request.path()).append(end);
  logging::Verbose(line);
}

// Serves each endpoint at its path.
class Handler : public EndpointHandler {
 public:
  using EndpointHandler::EndpointHandler;

  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    if (IsForMetrics(head)) return RefusalOfHead(access(), kserve::Api::kMetrics, head);
    const auto found = FindRoute(head.method, head.path());
    if (!found) return Error(NotFound("Not Found"), kText);
    const Endpoint& endpoint = *found->route.endpoint;
    if (auto refusal = RefusalOfHead(access(), endpoint.api, head)) return refusal;
    if (!found->allows_method) return MethodNotAllowed(endpoint.Has(kText405) ? kText : kJson);
    if (endpoint.api != kserve::Api::kInference) return std::nullopt;
    const auto model = server().FindModel(found->route.model, found->route.version);
    if (model.ok()) return std::nullopt;
    return Error(model.status(), endpoint.Has(kTakesBinary) ? kText : kJson);
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    if (logging::Enabled(logging::Level::kVerbose)) LogRequest("HTTP request", request);
    if (IsForMetrics(request)) return responder->Send(Metrics(request));
    auto found = FindRoute(request.method, request.path());
    if (!found) {
      if (logging::Enabled(logging::Level::kVerbose)) LogRequest("HTTP error", request, " - 404");
      return responder->Send(Error(NotFound("Not Found"), kText));
    }
    const Endpoint& endpoint = *found->route.endpoint;
    if (auto refusal = Admit(access(), endpoint.api, request)) return responder->Send(*refusal);
    if (!found->allows_method) {
      return responder->Send(MethodNotAllowed(endpoint.Has(kText405) ? kText : kJson));
    }
    Run(std::move(found->route), std::move(request), std::move(responder));
  }

 private:
  bool IsForMetrics(const HttpRequest& head) const {
    return metrics_page() != nullptr && head.path() == "/metrics";
  }
  HttpResponse Metrics(HttpRequest& request) const {
    if (auto refusal = Admit(access(), kserve::Api::kMetrics, request)) return *std::move(refusal);
    constexpr http_listener::Methods kMethods =
        http_listener::kGet | http_listener::kHead | http_listener::kOptions;
    if (!http_listener::Allows(kMethods, request.method)) return MethodNotAllowed(kText);
    if (request.method == "OPTIONS") return http_listener::AnswerOptions(kMethods);
    return Answer(200, "text/plain; charset=utf-8", metrics_page()(SeesReuse(access(), request)));
  }

  const Endpoint* EndpointOf(const HttpRequest& head) const override {
    return FindEndpoint(head.method, head.path());
  }
};

}  // namespace

std::unique_ptr<http_listener::HttpHandler> MakeHandler(serving::Server& server,
                                                        const EndpointOptions& options) {
  return std::make_unique<Handler>(server, options);
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(
    serving::Server& server, const HttpOptions& options,
    std::vector<std::unique_ptr<http_listener::PathHandler>> beside) {
  if (options.endpoints.max_input_bytes == 0) {
    return InvalidArgument("--http-max-input-size: got 0, should be at least 1 byte");
  }
  auto handler = MakeHandler(server, options.endpoints);
  for (auto& paths : beside)
    handler = http_listener::BesidePaths::Make(std::move(paths), std::move(handler));
  handler = http_listener::MakeAcrossOrigins(options.endpoints.access.web_pages.cors_origins,
                                             std::move(handler));
  std::unique_ptr<HttpServer> http_server(new HttpServer(std::move(handler)));
  RETURN_IF_ERROR(http_server->Listen(options.listener));
  return http_server;
}

}  // namespace inflight::kserve_http

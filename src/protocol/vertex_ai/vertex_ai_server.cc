// SPDX-License-Identifier: Apache-2.0
#include "protocol/vertex_ai/vertex_ai_server.h"

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "protocol/kserve/http/only_ready_model.h"
#include "protocol/kserve/http/response.h"
#include "protocol/vertex_ai/redirect.h"

namespace inflight::vertex_ai {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;
using kserve_http::Endpoint;
using kserve_http::Error;
using kserve_http::kText;
using kserve_http::Route;

constexpr char kBinaryType[] = "application/vnd.vertex-ai-triton.binary+json;json-header-size=";

class Handler : public kserve_http::EndpointHandler {
 public:
  Handler(serving::Server& server, VertexAiOptions options)
      : EndpointHandler(server, std::move(options.endpoints)),
        health_route_(std::move(options.health_route)),
        predict_route_(std::move(options.predict_route)),
        default_model_(std::move(options.default_model)),
        metrics_page_(std::move(options.metrics_page)) {}

  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    const bool is_predict = head.path() == predict_route_;
    if (is_predict && IsToMetrics(head))
      return RefusalOfHead(access(), kserve::Api::kMetrics, head);
    const auto route = FindRoute(head);
    return route ? RefusalOfHead(access(), route->endpoint->api, head) : Unknown(head, is_predict);
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    const bool is_predict = request.path() == predict_route_;
    if (is_predict && IsToMetrics(request)) {
      auto refusal = Admit(access(), kserve::Api::kMetrics, request);
      return responder->Send(refusal ? *std::move(refusal) : Metrics(request));
    }
    auto route = FindRoute(request);
    if (!route) return responder->Send(Unknown(request, is_predict));
    if (auto refusal = Admit(access(), route->endpoint->api, request))
      return responder->Send(*refusal);
    if (request.method != (is_predict ? "POST" : "GET")) {
      return responder->Send(kserve_http::MethodNotAllowed(kText));
    }
    Run(*std::move(route), std::move(request), std::move(responder));
  }

 private:
  const Endpoint* EndpointOf(const HttpRequest& head) const override {
    const auto route = FindRoute(head);
    return route ? route->endpoint : nullptr;
  }

  std::optional<Route> FindRoute(const HttpRequest& head) const {
    if (head.path() == predict_route_) {
      const std::string* redirect = head.FindHeader(kRedirectHeader);
      if (redirect != nullptr) return FindRedirect(*redirect);
      return Route{.endpoint = &infer_, .model = default_model_};
    }
    if (head.path() == health_route_) return Route{.endpoint = &ready_};
    return std::nullopt;
  }

  static bool IsToMetrics(const HttpRequest& request) {
    const std::string* redirect = request.FindHeader(kRedirectHeader);
    return redirect != nullptr && *redirect == kMetrics;
  }

  HttpResponse Metrics(const HttpRequest& request) const {
    if (request.method != "POST") return kserve_http::MethodNotAllowed(kText);
    if (!metrics_page_) return Error(Unavailable("metrics not available: --allow-metrics=false"));
    return kserve_http::Answer(200, "text/plain; charset=utf-8",
                               metrics_page_(SeesReuse(access(), request)));
  }

  HttpResponse Unknown(const HttpRequest& request, bool is_predict) const {
    if (is_predict) {
      return Error(InvalidArgument(std::string("unknown path in ") + kRedirectHeader + ": '" +
                                   *request.FindHeader(kRedirectHeader) + "'"),
                   kText);
    }
    return Error(
        InvalidArgument("unknown route '" + std::string(request.path()) + "', known are '" +
                        health_route_ + "' and '" + predict_route_ + "'"),
        kText);
  }

  const Endpoint& ready_ = kserve_http::EndpointAt("/v2/health/ready");
  const Endpoint& infer_ = kserve_http::EndpointAt("/v2/models/{model}[/versions/{version}]/infer");
  const std::string health_route_;
  const std::string predict_route_;
  const std::string default_model_;
  const std::function<std::string(bool with_reuse)> metrics_page_;
};

Status CheckRoutes(const VertexAiOptions& options) {
  for (const auto& [variable, route] : {std::pair("AIP_HEALTH_ROUTE", options.health_route),
                                        {"AIP_PREDICT_ROUTE", options.predict_route}}) {
    if (route.empty()) {
      return InvalidArgument(std::string(variable) +
                             ": the environment variable is not set, Vertex AI needs it");
    }
    if (!route.starts_with('/')) {
      return InvalidArgument(std::string(variable) + ": got '" + route +
                             "', a route begins with '/'");
    }
  }
  if (options.health_route != options.predict_route) return Status::Ok();
  return InvalidArgument("AIP_HEALTH_ROUTE and AIP_PREDICT_ROUTE are both '" +
                         options.health_route + "', they must differ");
}

Result<std::string> DefaultModel(const serving::Server& server, const std::string& wanted) {
  if (!wanted.empty()) {
    if (server.FindModel(wanted, /*version=*/"").ok()) return wanted;
    return InvalidArgument("Expect the default model '" + wanted + "' is loaded");
  }
  auto only = kserve_http::OnlyReadyModel(server);
  if (only.ok()) return only;
  return InvalidArgument(
      "Expect the model repository contains only a single model if default model is not "
      "specified: " +
      only.status().message() + " (--vertex-ai-default-model)");
}

}  // namespace

Result<std::unique_ptr<http_listener::HttpHandler>> MakeHandler(serving::Server& server,
                                                                VertexAiOptions options) {
  RETURN_IF_ERROR(CheckRoutes(options));
  ASSIGN_OR_RETURN(options.default_model, DefaultModel(server, options.default_model));
  options.endpoints.framing = kserve_http::BinaryFraming(kBinaryType);
  return std::unique_ptr<http_listener::HttpHandler>(
      std::make_unique<Handler>(server, std::move(options)));
}

Result<std::unique_ptr<VertexAiServer>> VertexAiServer::Start(serving::Server& server,
                                                              VertexAiOptions options) {
  const http_listener::ListenerOptions listener = options.listener;
  ASSIGN_OR_RETURN(auto handler, MakeHandler(server, std::move(options)));
  std::unique_ptr<VertexAiServer> vertex_ai(new VertexAiServer(std::move(handler)));
  RETURN_IF_ERROR(vertex_ai->Listen(listener));
  return vertex_ai;
}

}  // namespace inflight::vertex_ai

// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/http_server.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/worker_pool.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"
#include "protocol/kserve/http/route.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

// Bodies from here on are parsed on a thread of their own: a second of JSON must not hold up the
// streams of an I/O thread.
constexpr size_t kLargeBodyBytes = 512 * 1024;

class Handler : public http_listener::HttpHandler {
 public:
  Handler(serving::Server& server, const HttpOptions& options)
      : options_(options), context_{server, options_.max_input_bytes, options_.header_forward} {}

  size_t MaxBodyBytes(const HttpRequest& head) const override {
    const auto route = FindRoute(head.path());
    const std::string* json_length = head.FindHeader("Inference-Header-Content-Length");
    const bool has_binary_part = route && route->endpoint == Endpoint::kInfer &&
                                 json_length != nullptr && *json_length != "0";
    return has_binary_part ? std::max(options_.max_binary_body_bytes, options_.max_input_bytes)
                           : options_.max_input_bytes;
  }

  HttpResponse BodyTooLarge(const HttpRequest& head, std::optional<uint64_t> size) const override {
    const std::string limit = std::to_string(MaxBodyBytes(head));
    const std::string found =
        size ? "has " + std::to_string(*size) + " bytes, which" : "of unknown length";
    return Error(InvalidArgument("request body " + found +
                                 " exceeds the maximum allowed input size of " + limit +
                                 " bytes. Use --http-max-input-size to increase the limit."));
  }

  HttpResponse BadRequest(std::string_view reason) const override {
    return Error(InvalidArgument(std::string(reason)), kText);
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    auto route = FindRoute(request.path());
    if (!route) return responder->Send(Error(NotFound("Not Found"), kText));
    if (auto refusal = CheckRestriction(*route, request)) return responder->Send(*refusal);
    if (!AllowsMethod(route->endpoint, request.method)) {
      HttpResponse response = Error(InvalidArgument("Method Not Allowed"), LabelOf405(*route));
      response.status = 405;
      return responder->Send(std::move(response));
    }
    const bool waits = route->endpoint == Endpoint::kLoad || route->endpoint == Endpoint::kUnload;
    const bool is_large = request.body->size() >= kLargeBodyBytes;
    if (!waits && !is_large) return Dispatch(*route, request, responder);
    WorkerPool& pool = waits ? model_control_ : large_bodies_;
    pool.Post([this, route = *std::move(route), request = std::move(request), responder] {
      Dispatch(route, request, responder);
    });
  }

 private:
  std::optional<HttpResponse> CheckRestriction(const Route& route,
                                               const HttpRequest& request) const {
    const kserve::RequiredHeader* required = options_.restrictions.Of(ApiOf(route.endpoint));
    if (required == nullptr) return std::nullopt;
    const std::string* value = request.FindHeader(required->name);
    if (value != nullptr && *value == required->value) return std::nullopt;
    return Error({StatusCode::kPermissionDenied,
                  "This API is restricted, expecting header '" + required->name + "'"},
                 kText);
  }

  static std::string_view LabelOf405(const Route& route) {
    const bool is_text = route.endpoint == Endpoint::kInfer || route.endpoint == Endpoint::kLive ||
                         route.endpoint == Endpoint::kReady ||
                         route.endpoint == Endpoint::kModelReady;
    return is_text ? kText : kJson;
  }

  void Dispatch(const Route& route, const HttpRequest& request,
                const std::shared_ptr<HttpResponder>& responder) {
    try {
      switch (route.endpoint) {
        case Endpoint::kInfer:
          return HandleInfer(context_, route, request, responder);
        case Endpoint::kGenerate:
          return HandleGenerate(context_, route, /*is_stream=*/false, request, responder);
        case Endpoint::kGenerateStream:
          return HandleGenerate(context_, route, /*is_stream=*/true, request, responder);
        default:
          return responder->Send(Reply(route, request));
      }
    } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
      logging::Error("HTTP request failed", {{"path", request.path()}, {"error", e.what()}});
      responder->Send(Error(Internal(std::string("request failed: ") + e.what())));
    }
  }

  HttpResponse Reply(const Route& route, const HttpRequest& request) const {
    switch (route.endpoint) {
      case Endpoint::kLive:
        return HandleLive(context_);
      case Endpoint::kReady:
        return HandleReady(context_);
      case Endpoint::kServerMetadata:
        return HandleServerMetadata(context_);
      case Endpoint::kModelMetadata:
        return HandleModelMetadata(context_, route);
      case Endpoint::kModelReady:
        return HandleModelReady(context_, route);
      case Endpoint::kModelConfig:
        return HandleModelConfig(context_, route);
      case Endpoint::kStatistics:
        return HandleStatistics(context_, route);
      case Endpoint::kIndex:
        return HandleIndex(context_, request);
      case Endpoint::kLoad:
        return HandleLoad(context_, route, request);
      case Endpoint::kUnload:
        return HandleUnload(context_, route, request);
      case Endpoint::kSharedMemoryStatus:
        return HandleSharedMemoryStatus(context_, route);
      case Endpoint::kSharedMemoryRegister:
        return HandleSharedMemoryRegister(context_, route, request);
      case Endpoint::kSharedMemoryUnregister:
        return HandleSharedMemoryUnregister(context_, route);
      case Endpoint::kTraceSetting:
        return HandleTraceSetting(context_, route, request);
      case Endpoint::kLogging:
        return HandleLogging(request);
      default:
        return Error(Internal("endpoint without a handler"));
    }
  }

  const HttpOptions options_;
  const Context context_;
  // Last: their tasks use the members above.
  WorkerPool large_bodies_{1, "http-body"};
  WorkerPool model_control_{1, "http-control"};
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(serving::Server& server,
                                                      HttpOptions options) {
  if (options.max_input_bytes == 0) {
    return InvalidArgument("--http-max-input-size: got 0, should be at least 1 byte");
  }
  std::unique_ptr<HttpServer> http_server(
      new HttpServer(std::make_unique<Handler>(server, options)));
  RETURN_IF_ERROR(http_server->Listen(options.listener));
  return http_server;
}

}  // namespace inflight::kserve_http

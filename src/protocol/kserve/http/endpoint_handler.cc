// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/endpoint_handler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

namespace {

// Bodies from here on are parsed on a thread of their own: a second of JSON must not hold up the
// streams of an I/O thread.
constexpr size_t kLargeBodyBytes = 512 * 1024;

}  // namespace

EndpointHandler::EndpointHandler(serving::Server& server, EndpointOptions options)
    : options_(std::move(options)),
      context_{server, options_.max_input_bytes, options_.header_forward, options_.framing,
               options_.with_compression},
      model_control_(server.model_load_threads(), "http-control") {}

size_t EndpointHandler::MaxBodyBytes(const HttpRequest& head) const {
  const auto route = FindEndpoint(head);
  const bool has_binary_part =
      route && route->endpoint == Endpoint::kInfer && options_.framing.HasBinaryPart(head);
  return has_binary_part ? std::max(options_.max_binary_body_bytes, options_.max_input_bytes)
                         : options_.max_input_bytes;
}

HttpResponse EndpointHandler::BodyTooLarge(const HttpRequest& head,
                                           std::optional<uint64_t> size) const {
  const std::string limit = std::to_string(MaxBodyBytes(head));
  const std::string found =
      size ? "has " + std::to_string(*size) + " bytes, which" : "of unknown length";
  return Error(InvalidArgument("request body " + found +
                               " exceeds the maximum allowed input size of " + limit +
                               " bytes. Use --http-max-input-size to increase the limit."));
}

HttpResponse EndpointHandler::BadRequest(std::string_view reason) const {
  return Error(InvalidArgument(std::string(reason)), kText);
}

std::optional<HttpResponse> EndpointHandler::Refusal(kserve::Api api,
                                                     const HttpRequest& request) const {
  const kserve::RequiredHeader* required = options_.restrictions.Of(api);
  if (required == nullptr) return std::nullopt;
  const std::string* value = request.FindHeader(required->name);
  if (value != nullptr && *value == required->value) return std::nullopt;
  return Error({StatusCode::kPermissionDenied,
                "This API is restricted, expecting header '" + required->name + "'"},
               kText);
}

void EndpointHandler::Run(Route route, HttpRequest request,
                          std::shared_ptr<HttpResponder> responder) {
  const bool waits = route.endpoint == Endpoint::kLoad || route.endpoint == Endpoint::kUnload;
  const bool is_large = request.body->size() >= kLargeBodyBytes;
  if (!waits && !is_large) return Dispatch(route, request, responder);
  WorkerPool& pool = waits ? model_control_ : large_bodies_;
  pool.Post([this, route = std::move(route), request = std::move(request),
             responder = std::move(responder)] { Dispatch(route, request, responder); });
}

void EndpointHandler::Dispatch(const Route& route, const HttpRequest& request,
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

HttpResponse EndpointHandler::Reply(const Route& route, const HttpRequest& request) const {
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

}  // namespace inflight::kserve_http

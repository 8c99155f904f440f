// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/endpoint_handler.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/client.h"
#include "base/log.h"
#include "protocol/http_listener/large_bodies.h"
#include "protocol/kserve/http/response.h"
#include "protocol/kserve/http/tensor_json.h"

namespace inflight::kserve_http {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

namespace {

// A compressed body may unpack to a thousand times as much.
size_t MostBytes(const HttpRequest& request) {
  constexpr size_t kMostExpansion = 1024;  // of deflate, about
  const size_t size = request.body->size();
  return request.FindHeader("Content-Encoding") == nullptr ? size : size * kMostExpansion;
}

}  // namespace

EndpointHandler::EndpointHandler(serving::Server& server, EndpointOptions options)
    : options_(std::move(options)),
      context_{server,           options_.max_input_bytes,  options_.header_forward,
               options_.framing, options_.with_compression, options_.strict_parameters,
               options_.access},
      large_bodies_(http_listener::kBodyThreads, "http-body"),
      model_control_(server.model_load_threads(), "http-control") {}

size_t EndpointHandler::MaxBodyBytes(const HttpRequest& head) const {
  // Most requests have none, and their endpoint is looked for once, when they are handled.
  if (!options_.framing.HasBinaryPart(head)) return options_.max_input_bytes;
  const Endpoint* endpoint = EndpointOf(head);
  if (endpoint == nullptr || !endpoint->Has(kTakesBinary)) return options_.max_input_bytes;
  return std::max(options_.max_binary_body_bytes, options_.max_input_bytes);
}

HttpResponse EndpointHandler::BodyTooLarge(const HttpRequest& head,
                                           std::optional<uint64_t> size) const {
  const size_t limit = MaxBodyBytes(head);
  if (size) return Error(CheckJsonSize(*size, limit));
  return Error(InvalidArgument(
      "request body of unknown length exceeds the maximum allowed input "
      "size of " +
      std::to_string(limit) + " bytes. Use --http-max-input-size to increase the limit."));
}

HttpResponse EndpointHandler::BadRequest(std::string_view reason) const {
  return Error(InvalidArgument(std::string(reason)), kText);
}

std::optional<HttpResponse> EndpointHandler::RefusalWhileLoading(kserve::Api api) const {
  if (api == kserve::Api::kHealth) return std::nullopt;
  const Status usable = context_.server.CheckUsable();
  if (usable.reason() != Reason::kLoading) return std::nullopt;
  return Error(usable);
}

void EndpointHandler::Run(Route route, HttpRequest request,
                          std::shared_ptr<HttpResponder> responder) {
  if (auto refusal = RefusalWhileLoading(route.endpoint->api))
    return responder->Send(*std::move(refusal));
  const bool waits = route.endpoint->Has(kWaits);
  const size_t most_bytes = MostBytes(request);
  if (!waits && most_bytes < http_listener::kLargeBodyBytes)
    return Dispatch(route, request, responder);
  const void* const owner = OwnerOf(request.caller, request.memory);
  auto task = [this, route = std::move(route), request = std::move(request),
               responder = std::move(responder)] { Dispatch(route, request, responder); };
  if (waits) return model_control_.Post(std::move(task));
  large_bodies_.Post(std::move(task), http_listener::LengthOfBody(most_bytes), owner);
}

void EndpointHandler::Dispatch(const Route& route, const HttpRequest& request,
                               const std::shared_ptr<HttpResponder>& responder) {
  try {
    const auto& handle = route.endpoint->handle;
    if (const auto* start = std::get_if<Start*>(&handle)) {
      return (**start)(context_, route, request, responder);
    }
    responder->Send(std::get<Reply*>(handle)(context_, route, request));
  } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
    logging::Error("HTTP request failed", {{"path", request.path()}, {"error", e.what()}});
    responder->Send(Error(Caught("request failed", e)));
  }
}

}  // namespace inflight::kserve_http

// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/openai_handler.h"

#include <array>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/client.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/worker_pool.h"
#include "json/json_reader.h"
#include "protocol/http_listener/cross_origin.h"
#include "protocol/http_listener/large_bodies.h"
#include "protocol/openai/error.h"
#include "protocol/openai/names_elsewhere.h"

namespace inflight::openai {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;
using http_listener::kDelete;
using http_listener::kGet;
using http_listener::kPost;
using kserve::Api;
using serving::kInlineTextBytes;
using serving::kLongTextBytes;

// clang-format off
constexpr Route kRoutes[] = {
    {"/v1/models", kGet, Api::kMetadata, HandleModels, Work::kLookAtDir},
    {"/v1/models/{model}", kGet, Api::kMetadata, HandleModel},
    {"/v1/models/{owner}/{model}", kGet, Api::kMetadata, HandleModel},
    {"/v1/chat/completions", kPost, Api::kInference, HandleChatCompletions},
    {"/v1/completions", kPost, Api::kInference, HandleCompletions},
    {"/v1/responses", kPost, Api::kInference, HandleResponses, Work::kReadKept},
    {"/v1/responses/{response}", kGet, Api::kInference, HandleResponse, Work::kReadKept},
    {"/v1/responses/{response}", kDelete, Api::kInference, HandleDeleteResponse},
    {"/v1/responses/{response}/input_items", kGet, Api::kInference, HandleInputItems, Work::kReadKept},
    {"/v1/embeddings", kPost, Api::kInference, HandleEmbeddings},
    {"/tokenize", kPost, Api::kInference, HandleTokenize, Work::kTokenize},
    {"/detokenize", kPost, Api::kInference, HandleDetokenize, Work::kDetokenize},
    {"/health", kGet, Api::kHealth, HandleHealth},
    {"/version", kGet, Api::kMetadata, HandleVersion},
};
// clang-format on
constexpr std::string_view kApiPaths = "/v1/";

bool IsOfTokens(const Route& route) {
  return route.work == Work::kTokenize || route.work == Work::kDetokenize;
}

// The answer that a body goes on from; empty: none.
std::string PreviousId(std::string_view body) {
  constexpr std::array<std::string_view, 1> kNames = {"previous_response_id"};
  const auto root = json::Value::Parse(body);
  const auto previous = root.ok() ? root->Pick(kNames)[0] : std::nullopt;
  const auto id = previous ? previous->AsString() : Result<std::string>(std::string());
  return id.ok() ? *id : std::string();
}

// From this size on of what it reads, its work is done on a thread for large bodies
// (large_bodies.h); what tokenizes does so from the size on that requests are tokenized elsewhere.
size_t LeastBytesElsewhere(const Route& route) {
  if (route.work == Work::kLookAtDir) return 0;
  return IsOfTokens(route) ? kInlineTextBytes : http_listener::kLargeBodyBytes;
}
WorkerPool::Length LengthOf(const Route& route, size_t body_bytes) {
  if (!IsOfTokens(route)) return http_listener::LengthOfBody(body_bytes);
  return body_bytes >= kLongTextBytes ? WorkerPool::Length::kLong : WorkerPool::Length::kShort;
}

// For the time in which the endpoint tokenizes all of its body at once.
Result<MemoryCharge> ChargeTokenizing(const Route& route, const HttpRequest& request) {
  MemoryCharge charge(request.memory);
  const size_t size = request.body->size();
  if (route.work != Work::kTokenize || size < kInlineTextBytes) return charge;
  RETURN_IF_ERROR(charge.Resize(size * serving::kTokenizingBytesPerByte));
  return charge;
}

class Handler final : public http_listener::PathHandler {
 public:
  Handler(serving::Server& server, OpenAiOptions options)
      : server_(server),
        options_(std::move(options)),
        models_(server, options_.aliases),
        context_{.server = server_,
                 .models = models_,
                 .formats = options_.formats,
                 .responses = options_.responses.get(),
                 .started_s = std::time(nullptr)},
        routes_(AllRoutes(options_.more_routes)) {}

  bool Serves(const HttpRequest& head) const override {
    const std::string_view path = head.path();
    return path.starts_with(kApiPaths) || router_.Find("GET", path).has_value() ||
           IsPathElsewhere(path);
  }

  size_t MaxBodyBytes(const HttpRequest&) const override { return options_.max_input_bytes; }
  HttpResponse BodyTooLarge(const HttpRequest& head, std::optional<uint64_t> size) const override {
    const auto match = router_.Find(head.method, head.path());
    const auto error = match ? routes_[match->row].error : ErrorWith;
    return error(InvalidArgument("the body has " + (size ? std::to_string(*size) : "more") +
                                 " bytes, " + std::to_string(options_.max_input_bytes) +
                                 " are allowed; --http-max-input-size allows more"),
                 413);
  }
  HttpResponse BadRequest(std::string_view reason) const override {
    return ErrorOf(400, std::string(reason));
  }

  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    const auto match = router_.Find(head.method, head.path());
    if (!match || !match->allows_method) return NoRoute(head, match);
    const Route& route = routes_[match->row];
    return Refusal(route, kserve_http::Look(options_.access, route.api, head, /*is_whole=*/false));
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    const auto match = router_.Find(request.method, request.path());
    if (!match || !match->allows_method) return responder->Send(NoRoute(request, match));
    if (request.method == "OPTIONS")
      return responder->Send(http_listener::AnswerOptions(match->methods));
    const Route& route = routes_[match->row];
    kserve::Admission admission =
        kserve_http::Look(options_.access, route.api, request, /*is_whole=*/true);
    request.caller = std::move(admission.client);
    if (auto refusal = Refusal(route, admission)) return responder->Send(*std::move(refusal));
    if (route.api != kserve::Api::kHealth) {
      if (const Status usable = server_.CheckUsable(); usable.reason() == Reason::kLoading)
        return responder->Send(route.error(usable, HttpStatusOf(usable)));
    }
    const std::string* coding = request.FindHeader("Content-Encoding");
    if (coding != nullptr && *coding != "identity")
      return responder->Send(route.error(
          InvalidArgument("Content-Encoding", "bodies are taken as they are alone"), 400));
    std::string name(match->values.Of("owner"));
    if (!name.empty()) name += '/';
    name += match->values.Of("model");
    name += match->values.Of("response");
    const size_t size = request.body->size() + KeptBytes(route, name, request);
    if (size < LeastBytesElsewhere(route)) return Run(route, name, request, responder);
    const void* const owner = OwnerOf(request.caller, request.memory);
    large_bodies_.Post([this, &route, name = std::move(name), request = std::move(request),
                        responder = std::move(responder)] { Run(route, name, request, responder); },
                       LengthOf(route, size), owner);
  }

 private:
  // Of a kept answer that the request reads beside its body. A large body goes elsewhere anyway.
  size_t KeptBytes(const Route& route, const std::string& name, const HttpRequest& request) const {
    if (route.work != Work::kReadKept || options_.responses == nullptr ||
        request.body->size() >= http_listener::kLargeBodyBytes)
      return 0;
    const std::string id = name.empty() ? PreviousId(*request.body) : name;
    return id.empty() ? 0 : options_.responses->BytesOf(IdentityOf(request.caller), id);
  }

  static std::vector<Route> AllRoutes(std::span<const Route> more) {
    std::vector<Route> all(std::begin(kRoutes), std::end(kRoutes));
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  HttpResponse NoRoute(const HttpRequest& head,
                       const std::optional<http_listener::Router::Match>& match) const {
    const std::string what =
        head.method.substr(0, 16) + " " + std::string(head.path().substr(0, 256));
    if (match) {
      const std::string methods = http_listener::MethodNames(match->methods);
      HttpResponse response =
          routes_[match->row].error(InvalidArgument(what + ": this path has " + methods), 405);
      response.headers.emplace_back("Allow", methods);
      return response;
    }
    return ErrorOf(404, what + ": there is no such path; " + PathElsewhere(head.path()));
  }

  static std::optional<HttpResponse> Refusal(const Route& route,
                                             const kserve::Admission& admission) {
    if (admission.ok()) return std::nullopt;
    HttpResponse response = route.error(admission.status, HttpStatusOf(admission.status));
    if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }

  void Run(const Route& route, const std::string& name, const HttpRequest& request,
           const std::shared_ptr<HttpResponder>& responder) {
    try {
      const auto tokenizing = ChargeTokenizing(route, request);
      if (!tokenizing.ok())
        return responder->Send(route.error(tokenizing.status(), HttpStatusOf(tokenizing.status())));
      route.handle(context_, name, request, responder);
    } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
      logging::Error("request failed", {{"path", request.path()}, {"error", e.what()}});
      const Status status = Caught("request failed", e);
      responder->Send(route.error(status, HttpStatusOf(status)));
    }
  }

  serving::Server& server_;
  const OpenAiOptions options_;
  const ServedModels models_;
  const Context context_;
  const std::vector<Route> routes_;
  const http_listener::Router router_ = http_listener::Router::Of(routes_);
  WorkerPool large_bodies_{http_listener::kBodyThreads,
                           "http-body"};  // last: its tasks use the members above
};

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

std::unique_ptr<http_listener::PathHandler> MakeHandler(serving::Server& server,
                                                        OpenAiOptions options) {
  return std::make_unique<Handler>(server, std::move(options));
}

Result<std::unique_ptr<OpenAiServer>> OpenAiServer::Start(
    serving::Server& server, const http_listener::ListenerOptions& listener,
    OpenAiOptions options) {
  auto origins = options.access.web_pages.cors_origins;
  std::unique_ptr<OpenAiServer> started(new OpenAiServer(http_listener::MakeAcrossOrigins(
      std::move(origins), MakeHandler(server, std::move(options)))));
  RETURN_IF_ERROR(started->Listen(listener));
  return started;
}

}  // namespace inflight::openai

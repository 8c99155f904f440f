// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/openai_handler.h"

#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/worker_pool.h"
#include "protocol/openai/error.h"

namespace inflight::openai {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;
using http_listener::kGet;
using http_listener::kPost;
using kserve::Api;

// clang-format off
constexpr Route kRoutes[] = {
    {"/v1/models", kGet, Api::kMetadata, HandleModels},
    {"/v1/models/{model}", kGet, Api::kMetadata, HandleModel},
    {"/v1/models/{owner}/{model}", kGet, Api::kMetadata, HandleModel},
    {"/v1/chat/completions", kPost, Api::kInference, HandleChatCompletions},
    {"/v1/completions", kPost, Api::kInference, HandleCompletions},
    {"/tokenize", kPost, Api::kInference, HandleTokenize},
    {"/detokenize", kPost, Api::kInference, HandleDetokenize},
    {"/health", kGet, Api::kHealth, HandleHealth},
    {"/version", kGet, Api::kMetadata, HandleVersion},
};
// clang-format on
constexpr std::string_view kApiPaths = "/v1/";

// Bodies from here on are read on a thread of their own; /tokenize does all its work there from the
// size on that requests are tokenized elsewhere.
constexpr size_t kLargeBodyBytes = 512 * 1024;
constexpr size_t kLongTextBytes = 4096;

class Handler final : public http_listener::PathHandler {
 public:
  Handler(serving::Server& server, OpenAiOptions options)
      : server_(server),
        options_(std::move(options)),
        models_(server, options_.aliases),
        context_{.server = server_,
                 .models = models_,
                 .formats = options_.formats,
                 .started_s = std::time(nullptr)} {}

  bool Serves(std::string_view path) const override {
    return path.starts_with(kApiPaths) || router_.Find("GET", path).has_value();
  }

  size_t MaxBodyBytes(const HttpRequest&) const override { return options_.max_input_bytes; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t> size) const override {
    return ErrorOf(413, "the body has " + (size ? std::to_string(*size) : "more") + " bytes, " +
                            std::to_string(options_.max_input_bytes) +
                            " are allowed; --http-max-input-size allows more");
  }
  HttpResponse BadRequest(std::string_view reason) const override {
    return ErrorOf(400, std::string(reason));
  }

  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    const auto match = router_.Find(head.method, head.path());
    if (!match || !match->allows_method) return NoRoute(head, match.has_value());
    return Refusal(kserve_http::Look(options_.access, kRoutes[match->row].api, head,
                                     /*is_whole=*/false));
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    const auto match = router_.Find(request.method, request.path());
    if (!match || !match->allows_method)
      return responder->Send(NoRoute(request, match.has_value()));
    const Route& route = kRoutes[match->row];
    kserve::Admission admission =
        kserve_http::Look(options_.access, route.api, request, /*is_whole=*/true);
    request.caller = std::move(admission.client);
    if (auto refusal = Refusal(admission)) return responder->Send(*std::move(refusal));
    const std::string* coding = request.FindHeader("Content-Encoding");
    if (coding != nullptr && *coding != "identity")
      return responder->Send(ErrorOf(400, "Content-Encoding: bodies are taken as they are alone"));
    std::string model(match->values.Of("owner"));
    if (!model.empty()) model += '/';
    model += match->values.Of("model");
    const bool tokenizes = route.handle == HandleTokenize || route.handle == HandleDetokenize;
    if (request.body->size() < (tokenizes ? kLongTextBytes : kLargeBodyBytes))
      return Run(route, model, request, responder);
    large_bodies_.Post(
        [this, &route, model = std::move(model), request = std::move(request),
         responder = std::move(responder)] { Run(route, model, request, responder); });
  }

 private:
  static HttpResponse NoRoute(const HttpRequest& head, bool is_known_path) {
    const std::string what =
        head.method.substr(0, 16) + " " + std::string(head.path().substr(0, 256));
    if (is_known_path) return ErrorOf(405, what + ": this path has no such method");
    return ErrorOf(404, what +
                            ": there is no such path; the API has /v1/models, "
                            "/v1/chat/completions and /v1/completions");
  }

  static std::optional<HttpResponse> Refusal(const kserve::Admission& admission) {
    if (admission.ok()) return std::nullopt;
    HttpResponse response = Error(admission.status);
    if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (admission.retry_after_s > 0)
      response.headers.emplace_back("Retry-After", std::to_string(admission.retry_after_s));
    return response;
  }

  void Run(const Route& route, const std::string& model, const HttpRequest& request,
           const std::shared_ptr<HttpResponder>& responder) {
    try {
      route.handle(context_, model, request, responder);
    } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
      logging::Error("request failed", {{"path", request.path()}, {"error", e.what()}});
      responder->Send(Error(Caught("request failed", e)));
    }
  }

  serving::Server& server_;
  const OpenAiOptions options_;
  const ServedModels models_;
  const Context context_;
  const http_listener::Router router_ = http_listener::Router::Of(kRoutes);
  WorkerPool large_bodies_{1, "http-body"};  // last: its tasks use the members above
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
  std::unique_ptr<OpenAiServer> started(new OpenAiServer(MakeHandler(server, std::move(options))));
  RETURN_IF_ERROR(started->Listen(listener));
  return started;
}

}  // namespace inflight::openai

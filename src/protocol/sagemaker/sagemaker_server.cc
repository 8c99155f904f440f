// SPDX-License-Identifier: Apache-2.0
#include "protocol/sagemaker/sagemaker_server.h"

#include <initializer_list>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/worker_pool.h"
#include "protocol/http_listener/router.h"
#include "protocol/kserve/http/only_ready_model.h"
#include "protocol/kserve/http/response.h"
#include "protocol/sagemaker/hosted_models.h"

namespace inflight::sagemaker {
namespace {

using http_listener::Headers;
using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;
using http_listener::kDelete;
using http_listener::kGet;
using http_listener::kPost;
using kserve_http::Endpoint;
using kserve_http::Error;
using kserve_http::kText;

constexpr char kBinaryType[] = "application/vnd.sagemaker-triton.binary+json;json-header-size=";
constexpr std::string_view kInferPath = "/v2/models/{model}[/versions/{version}]/infer";

// Turns an answer that says that memory ran out into 507.
class InvokeResponder : public HttpResponder {
 public:
  explicit InvokeResponder(std::shared_ptr<HttpResponder> responder)
      : responder_(std::move(responder)) {}

  void Send(HttpResponse response) override {
    if (response.reason == Reason::kOutOfMemory) response.status = 507;
    responder_->Send(std::move(response));
  }
  void StartStream(int status, const Headers& headers) override {
    responder_->StartStream(status, headers);
  }
  void WriteChunk(std::string_view bytes) override { responder_->WriteChunk(bytes); }
  void Finish() override { responder_->Finish(); }
  void OnDisconnect(std::function<void()> callback) override {
    responder_->OnDisconnect(std::move(callback));
  }
  void OnSent(std::function<void()> callback) override { responder_->OnSent(std::move(callback)); }

 private:
  const std::shared_ptr<HttpResponder> responder_;
};

struct Modes {
  const Endpoint* ping;
  const Endpoint* inference;
};

class Handler : public kserve_http::EndpointHandler {
 public:
  Handler(serving::Server& server, SageMakerOptions options, Modes modes)
      : EndpointHandler(server, std::move(options.endpoints)),
        modes_(modes),
        default_model_(std::move(options.default_model)),
        hosted_(server, options.unload_timeout) {}
  ~Handler() override { stop_.request_stop(); }

  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    const auto match = router_.Find(head.method, head.path());
    if (!match || !match->allows_method) return UnknownRoute(head);
    return RefusalOfHead(access(), Rows()[match->row].api, head);
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    const auto match = router_.Find(request.method, request.path());
    if (!match || !match->allows_method) return responder->Send(UnknownRoute(request));
    const Row& row = Rows()[match->row];
    if (auto refusal = Admit(access(), row.api, request)) return responder->Send(*refusal);
    if (auto refusal = RefusalWhileLoading(row.api)) return responder->Send(*std::move(refusal));
    (this->*row.answer)(std::string(match->values.Of("model")), std::move(request),
                        std::move(responder));
  }

 private:
  using Answer = void(const std::string& model, HttpRequest request,
                      std::shared_ptr<HttpResponder> responder);

  struct Row {
    std::string_view path;
    http_listener::Methods methods;
    kserve::Api api;
    Answer Handler::*answer;
  };

  // {model} is the platform's name of it. docs/reference/protocol/sagemaker.md lists the rows.
  static std::span<const Row> Rows() {
    using enum kserve::Api;
    static constexpr Row kRows[] = {
        {"/ping", kGet, kHealth, &Handler::Ping},
        {"/invocations", kPost, kInference, &Handler::Invocations},
        {"/models", kGet, kModelRepository, &Handler::List},
        {"/models", kPost, kModelRepository, &Handler::Load},
        {"/models/{model}", kGet, kModelRepository, &Handler::Describe},
        {"/models/{model}", kDelete, kModelRepository, &Handler::Unload},
        {"/models/{model}/invoke", kPost, kInference, &Handler::Invoke},
    };
    return kRows;
  }

  static HttpResponse UnknownRoute(const HttpRequest& request) {
    return Error(InvalidArgument("unknown route '" + request.method + " " +
                                 std::string(request.path()) + "'"),
                 kText);
  }

  const Endpoint* EndpointOf(const HttpRequest& head) const override {
    const auto match = router_.Find(head.method, head.path());
    if (!match || !match->allows_method) return nullptr;
    const auto answer = Rows()[match->row].answer;
    if (answer == &Handler::Invocations) return modes_.inference;
    return answer == &Handler::Invoke ? &infer_ : nullptr;
  }

  void Ping(const std::string&, HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    Run({.endpoint = modes_.ping}, std::move(request), std::move(responder));
  }

  void Invocations(const std::string&, HttpRequest request,
                   std::shared_ptr<HttpResponder> responder) {
    std::string model = default_model_;
    if (model.empty()) {
      auto only = kserve_http::OnlyReadyModel(server());
      if (!only.ok()) {
        return responder->Send(Error(InvalidArgument(
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is not set, and " + only.status().message())));
      }
      model = *std::move(only);
    }
    Run({.endpoint = modes_.inference, .model = std::move(model)}, std::move(request),
        std::move(responder));
  }

  void Invoke(const std::string& name, HttpRequest request,
              std::shared_ptr<HttpResponder> responder) {
    auto served = hosted_.ServedName(name);
    if (!served) {
      return responder->Send(Error(NotFound("model '" + name + "' is not loaded"), kText));
    }
    Run({.endpoint = &infer_, .model = *std::move(served)}, std::move(request),
        std::make_shared<InvokeResponder>(std::move(responder)));
  }

  // Handlers of rows have one signature.  NOLINTBEGIN(performance-unnecessary-value-param)
  void List(const std::string&, HttpRequest, std::shared_ptr<HttpResponder> responder) {
    responder->Send(hosted_.List());
  }

  void Describe(const std::string& name, HttpRequest, std::shared_ptr<HttpResponder> responder) {
    responder->Send(hosted_.Describe(name));
  }

  void Load(const std::string&, HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    Control(std::move(responder),
            [this, request = std::move(request)] { return hosted_.Load(request); });
  }

  void Unload(const std::string& name, HttpRequest, std::shared_ptr<HttpResponder> responder) {
    Control(std::move(responder), [this, name] { return hosted_.Unload(name, stop_.get_token()); });
  }
  // NOLINTEND(performance-unnecessary-value-param)

  // Loads and unloads take their time, and their turn.
  template <typename Act>
  void Control(std::shared_ptr<HttpResponder> responder, Act act) {
    control_.Post([responder = std::move(responder), act = std::move(act)] {
      try {
        responder->Send(act());
      } catch (const std::exception& e) {  // such as bad_alloc
        responder->Send(Error(Caught("request failed", e)));
      }
    });
  }

  const http_listener::Router router_ =
      http_listener::Router::Of(Rows(), http_listener::Implied::kNothing);  // as Triton
  const Endpoint& infer_ = kserve_http::EndpointAt(kInferPath);
  const Modes modes_;
  const std::string default_model_;
  HostedModels hosted_;
  std::stop_source stop_;
  WorkerPool control_{1, "sagemaker"};  // last: its tasks use the members above
};

// The endpoint of the template that stands beside the value; the first where it is empty.
Result<const Endpoint*> OneOf(
    const char* variable, const std::string& value,
    std::initializer_list<std::pair<const char*, std::string_view>> known) {
  if (value.empty()) return &kserve_http::EndpointAt(known.begin()->second);
  std::string names;
  for (const auto& [name, path] : known) {
    if (value == name) return &kserve_http::EndpointAt(path);
    names += std::string(names.empty() ? "" : ", ") + name;
  }
  return InvalidArgument(std::string(variable) + ": got '" + value + "', known are " + names);
}

}  // namespace

Result<std::unique_ptr<http_listener::HttpHandler>> MakeHandler(serving::Server& server,
                                                                SageMakerOptions options) {
  Modes modes{};
  ASSIGN_OR_RETURN(modes.ping, OneOf("SAGEMAKER_TRITON_PING_MODE", options.ping_mode,
                                     {{"ready", "/v2/health/ready"}, {"live", "/v2/health/live"}}));
  ASSIGN_OR_RETURN(
      modes.inference,
      OneOf("SAGEMAKER_TRITON_INFERENCE_TYPE", options.inference_type,
            {{"infer", kInferPath},
             {"generate", "/v2/models/{model}[/versions/{version}]/generate"},
             {"generate_stream", "/v2/models/{model}[/versions/{version}]/generate_stream"}}));
  options.endpoints.framing = kserve_http::BinaryFraming(kBinaryType);
  options.endpoints.with_compression = false;
  return std::unique_ptr<http_listener::HttpHandler>(
      std::make_unique<Handler>(server, std::move(options), modes));
}

Result<std::unique_ptr<SageMakerServer>> SageMakerServer::Start(serving::Server& server,
                                                                SageMakerOptions options) {
  const http_listener::ListenerOptions listener = options.listener;
  ASSIGN_OR_RETURN(auto handler, MakeHandler(server, std::move(options)));
  std::unique_ptr<SageMakerServer> sagemaker(new SageMakerServer(std::move(handler)));
  RETURN_IF_ERROR(sagemaker->Listen(listener));
  return sagemaker;
}

}  // namespace inflight::sagemaker

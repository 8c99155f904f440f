// SPDX-License-Identifier: Apache-2.0
#include "protocol/sagemaker/sagemaker_server.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "base/worker_pool.h"
#include "protocol/kserve/http/only_ready_model.h"
#include "protocol/kserve/http/response.h"
#include "protocol/sagemaker/hosted_models.h"

namespace inflight::sagemaker {
namespace {

using http_listener::Headers;
using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;
using kserve_http::Endpoint;
using kserve_http::Error;
using kserve_http::kText;
using kserve_http::Route;

constexpr char kBinaryType[] = "application/vnd.sagemaker-triton.binary+json;json-header-size=";
constexpr std::string_view kModels = "/models";

// What a request asks for, by method and path.
enum class Action : uint8_t {
  kUnknown,
  kPing,
  kInvocations,
  kList,
  kDescribe,
  kLoad,
  kInvoke,
  kUnload
};

struct Call {
  Action action = Action::kUnknown;
  std::string model;  // of the last four but kLoad: the platform's name
};

// Below "/models/": H or H/invoke.
Call ModelCall(std::string_view method, std::string_view rest) {
  constexpr std::string_view kInvoke = "/invoke";
  const bool is_invoke = rest.ends_with(kInvoke);
  if (is_invoke) rest.remove_suffix(kInvoke.size());
  if (rest.empty() || rest.find('/') != rest.npos) return {};
  Action action = Action::kUnknown;
  if (is_invoke && method == "POST") action = Action::kInvoke;
  if (!is_invoke && method == "GET") action = Action::kDescribe;
  if (!is_invoke && method == "DELETE") action = Action::kUnload;
  return {action, std::string(rest)};
}

Call CallOf(const HttpRequest& request) {
  const std::string_view method = request.method;
  const std::string_view path = request.path();
  if (path == "/ping" && method == "GET") return {Action::kPing, {}};
  if (path == "/invocations" && method == "POST") return {Action::kInvocations, {}};
  if (path == kModels && method == "GET") return {Action::kList, {}};
  if (path == kModels && method == "POST") return {Action::kLoad, {}};
  if (!path.starts_with(kModels) || path.size() == kModels.size()) return {};
  if (path[kModels.size()] != '/') return {};
  return ModelCall(method, path.substr(kModels.size() + 1));
}

// Whether memory ran out in words of ours: of Buffer, of the devices' ledgers or of the executor.
// Their class answers 503, as a full queue's does.
bool IsOwnMemoryError(const HttpResponse& response) {
  static constexpr std::string_view kPhrases[] = {"bytes of memory", "are free",
                                                  "more KV cache memory"};
  return response.status == 503 &&
         std::any_of(std::begin(kPhrases), std::end(kPhrases), [&](std::string_view phrase) {
           return response.body.find(phrase) != std::string::npos;
         });
}

// Turns an answer that says that memory ran out into 507.
class InvokeResponder : public HttpResponder {
 public:
  explicit InvokeResponder(std::shared_ptr<HttpResponder> responder)
      : responder_(std::move(responder)) {}

  void Send(HttpResponse response) override {
    const bool lacks_memory = IsOutOfMemory(response.body) || IsOwnMemoryError(response);
    if (response.status >= 400 && lacks_memory) response.status = 507;
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
  Endpoint ping = Endpoint::kReady;
  Endpoint inference = Endpoint::kInfer;
};

class Handler : public kserve_http::EndpointHandler {
 public:
  Handler(serving::Server& server, SageMakerOptions options, Modes modes)
      : EndpointHandler(server, std::move(options.endpoints)),
        modes_(modes),
        default_model_(std::move(options.default_model)),
        hosted_(server, options.unload_timeout) {}
  ~Handler() override { stop_.request_stop(); }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    Call call = CallOf(request);
    if (call.action == Action::kUnknown) {
      return responder->Send(Error(InvalidArgument("unknown route '" + request.method + " " +
                                                   std::string(request.path()) + "'"),
                                   kText));
    }
    if (auto refusal = Refusal(ApiOf(call.action), request)) return responder->Send(*refusal);
    switch (call.action) {
      case Action::kPing:
        return Run({.endpoint = modes_.ping}, std::move(request), std::move(responder));
      case Action::kInvocations:
        return Invocations(std::move(request), std::move(responder));
      case Action::kInvoke:
        return Invoke(call.model, std::move(request), std::move(responder));
      case Action::kList:
        return responder->Send(hosted_.List());
      case Action::kDescribe:
        return responder->Send(hosted_.Describe(call.model));
      default:
        return Control(std::move(call), std::move(request), std::move(responder));
    }
  }

 private:
  static kserve::Api ApiOf(Action action) {
    switch (action) {
      case Action::kPing:
        return kserve::Api::kHealth;
      case Action::kInvocations:
      case Action::kInvoke:
        return kserve::Api::kInference;
      default:
        return kserve::Api::kModelRepository;
    }
  }

  std::optional<Route> FindEndpoint(const HttpRequest& head) const override {
    switch (CallOf(head).action) {
      case Action::kInvocations:
        return Route{.endpoint = modes_.inference};
      case Action::kInvoke:
        return Route{.endpoint = Endpoint::kInfer};
      default:
        return std::nullopt;
    }
  }

  void Invocations(HttpRequest request, std::shared_ptr<HttpResponder> responder) {
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
    Run({.endpoint = Endpoint::kInfer, .model = *std::move(served)}, std::move(request),
        std::make_shared<InvokeResponder>(std::move(responder)));
  }

  // Loads and unloads take their time, and their turn.
  void Control(Call call, HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    control_.Post([this, call = std::move(call), request = std::move(request),
                   responder = std::move(responder)] {
      try {
        responder->Send(call.action == Action::kLoad
                            ? hosted_.Load(request)
                            : hosted_.Unload(call.model, stop_.get_token()));
      } catch (const std::exception& e) {  // such as bad_alloc
        responder->Send(Error(Internal(std::string("request failed: ") + e.what())));
      }
    });
  }

  const Modes modes_;
  const std::string default_model_;
  HostedModels hosted_;
  std::stop_source stop_;
  WorkerPool control_{1, "sagemaker"};  // last: its tasks use the members above
};

Result<Endpoint> OneOf(const char* variable, const std::string& value,
                       std::initializer_list<std::pair<const char*, Endpoint>> known) {
  if (value.empty()) return known.begin()->second;
  std::string names;
  for (const auto& [name, endpoint] : known) {
    if (value == name) return endpoint;
    names += std::string(names.empty() ? "" : ", ") + name;
  }
  return InvalidArgument(std::string(variable) + ": got '" + value + "', known are " + names);
}

}  // namespace

Result<std::unique_ptr<SageMakerServer>> SageMakerServer::Start(serving::Server& server,
                                                                SageMakerOptions options) {
  Modes modes;
  ASSIGN_OR_RETURN(modes.ping, OneOf("SAGEMAKER_TRITON_PING_MODE", options.ping_mode,
                                     {{"ready", Endpoint::kReady}, {"live", Endpoint::kLive}}));
  ASSIGN_OR_RETURN(modes.inference, OneOf("SAGEMAKER_TRITON_INFERENCE_TYPE", options.inference_type,
                                          {{"infer", Endpoint::kInfer},
                                           {"generate", Endpoint::kGenerate},
                                           {"generate_stream", Endpoint::kGenerateStream}}));
  options.endpoints.framing = kserve_http::BinaryFraming(kBinaryType);
  options.endpoints.with_compression = false;
  std::unique_ptr<SageMakerServer> sagemaker(
      new SageMakerServer(std::make_unique<Handler>(server, options, modes)));
  RETURN_IF_ERROR(sagemaker->Listen(options.listener));
  return sagemaker;
}

}  // namespace inflight::sagemaker

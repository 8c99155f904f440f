// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/cog_server.h"

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/letter_case.h"
#include "base/log.h"
#include "base/percent_encoding.h"
#include "base/status_macros.h"
#include "base/worker_pool.h"
#include "json/json_writer.h"
#include "protocol/cog/openapi.h"
#include "protocol/cog/predictions.h"
#include "protocol/cog/timestamp.h"
#include "protocol/http_listener/large_bodies.h"
#include "protocol/http_listener/router.h"
#include "protocol/kserve/http/generate_json.h"
#include "protocol/kserve/http/only_ready_model.h"
#include "protocol/kserve/http/response.h"
#include "protocol/kserve/http/tensor_json.h"
#include "protocol/kserve/http/traced.h"

namespace inflight::cog {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;
using http_listener::kGet;
using http_listener::kPost;
using http_listener::kPut;
using kserve_http::Answer;
using kserve_http::kJson;

HttpResponse Detail(int status, std::string_view text) {
  std::string body;
  json::Writer(body).BeginObject().Key("detail").String(text).EndObject();
  return Answer(status, kJson, std::move(body));
}

HttpResponse Misfit(std::span<const FieldError> errors) {
  return Answer(422, kJson, ErrorDetail(errors));
}

HttpResponse NoRoom(const Status& status) { return Detail(503, status.message()); }

HttpResponse Busy() { return Detail(409, "Already running a prediction"); }

// As FastAPI tells bodies of JSON: a page of another host cannot send one unasked.
bool IsJson(const HttpRequest& request) {
  const std::string* header = request.FindHeader("Content-Type");
  if (header == nullptr) return true;
  const std::string_view type = http_listener::MediaType(*header);
  constexpr std::string_view kSuffix = "+json";
  return EqualInAnyCase(type, kJson) ||
         (type.size() > kSuffix.size() && type.find('/') != std::string_view::npos &&
          EqualInAnyCase(type.substr(type.size() - kSuffix.size()), kSuffix));
}

bool WantsEvents(const HttpRequest& request) {
  const std::string* accept = request.FindHeader("Accept");
  if (accept == nullptr) return false;
  constexpr std::string_view kEvents = "text/event-stream";
  for (std::string_view rest = *accept;;) {
    std::string_view part = rest.substr(0, rest.find(','));
    while (part.starts_with(' ')) part.remove_prefix(1);
    part = part.substr(0, part.find_first_of("; "));
    if (EqualInAnyCase(part, kEvents)) return true;
    const size_t comma = rest.find(',');
    if (comma == std::string_view::npos) return false;
    rest.remove_prefix(comma + 1);
  }
}

bool PrefersAsync(const HttpRequest& request) {
  const std::string* prefer = request.FindHeader("Prefer");
  return prefer != nullptr && *prefer == "respond-async";
}

}  // namespace

class CogServer::Handler : public http_listener::HttpHandler {
 public:
  Handler(serving::Server& server, CogOptions options, std::unique_ptr<WebhookCaller> webhooks)
      : server_(server),
        options_(std::move(options)),
        openapi_(OpenApi(options_.predictor.defaults)),
        predictions_(std::make_shared<Predictions>(options_.concurrency)),
        webhooks_(std::move(webhooks)),
        random_(std::random_device()()) {}

  size_t MaxBodyBytes(const HttpRequest&) const override { return options_.max_input_bytes; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t>) const override {
    return Detail(413, "the body is larger than " + std::to_string(options_.max_input_bytes) +
                           " bytes; --http-max-input-size allows more");
  }
  HttpResponse BadRequest(std::string_view reason) const override { return Detail(400, reason); }

  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    const auto match = router_.Find(head.method, head.path());
    if (!match || !match->allows_method) return UnknownRoute(match.has_value());
    return kserve_http::RefusalOfHead(options_.access, Rows()[match->row].api, head);
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    const auto match = router_.Find(request.method, request.path());
    if (!match || !match->allows_method) return responder->Send(UnknownRoute(match.has_value()));
    const Row& row = Rows()[match->row];
    if (auto refusal = kserve_http::Admit(options_.access, row.api, request))
      return responder->Send(*std::move(refusal));
    const std::string id = PercentDecode(match->values.Of("prediction_id"));
    if (request.body->size() < http_listener::kLargeBodyBytes)
      return Run(row, id, request, responder);
    large_bodies_.Post([this, &row, id, request = std::move(request),
                        responder = std::move(responder)] { Run(row, id, request, responder); });
  }

  void DrainWebhooks(std::chrono::milliseconds budget) { webhooks_->Drain(budget); }

  Status EndSetUp() {
    SetUp ended{.completed_at = WallClock(), .failures = {}};
    const auto model = Model();
    if (model.ok()) {
      RETURN_IF_ERROR(CheckAnswers(**model).WithPrefix("--cog-port"));
    } else {  // one that is not named may be loaded later
      ended.failures = FailedLoads();
      if (ended.failures.empty() && !options_.model.empty())
        return model.status().WithPrefix("--cog-model");
    }
    const std::lock_guard lock(set_up_mutex_);
    set_up_ = std::move(ended);
    return Status::Ok();
  }

  // kNotFound: it is not loaded.
  Result<std::shared_ptr<serving::Model>> Model() const {
    std::string name = options_.model;
    if (name.empty()) {
      constexpr std::string_view kEnsemble = "ensemble";
      if (server_.FindModel(kEnsemble, /*version=*/"").ok()) {
        name = kEnsemble;
      } else {
        ASSIGN_OR_RETURN(name, kserve_http::OnlyReadyModel(server_));
      }
    }
    return server_.FindModel(name, /*version=*/"");
  }

 private:
  using Respond = void(const std::string& id, const HttpRequest& request,
                       std::shared_ptr<HttpResponder> responder);

  struct Row {
    std::string_view path;
    http_listener::Methods methods;
    kserve::Api api;
    Respond Handler::*respond;
  };

  // docs/reference/protocol/cog.md lists the rows.
  static std::span<const Row> Rows() {
    using enum kserve::Api;
    static constexpr Row kRows[] = {
        {"/", kGet, kHealth, &Handler::Root},
        {"/health-check", kGet, kHealth, &Handler::HealthCheck},
        {"/openapi.json", kGet, kMetadata, &Handler::Schema},
        {"/docs", kGet, kMetadata, &Handler::Docs},
        {"/predictions", kPost, kInference, &Handler::Predict},
        {"/predictions/{prediction_id}", kPut, kInference, &Handler::PredictOnce},
        {"/predictions/{prediction_id}/cancel", kPost, kInference, &Handler::Cancel},
        {"/shutdown", kPost, kModelRepository, &Handler::Shutdown},
    };
    return kRows;
  }

  struct SetUp {
    std::chrono::sys_time<std::chrono::microseconds> completed_at;
    std::string failures;  // of loads, a line each; empty: it has succeeded
  };

  std::optional<SetUp> set_up() const {
    const std::lock_guard lock(set_up_mutex_);
    return set_up_;
  }

  // Of the model that is named, else of any.
  std::string FailedLoads() const {
    std::string lines;
    for (const serving::IndexEntry& entry : server_.Index(/*ready_only=*/false)) {
      const bool has_failed = entry.state == "UNAVAILABLE" && !entry.reason.empty();
      if (!has_failed || (!options_.model.empty() && entry.name != options_.model)) continue;
      lines += "model '" + entry.name + "': " + entry.reason + "\n";
    }
    if (lines.empty() && !server_.ready())  // a configuration that cannot be read is not listed
      lines = "not every model could be loaded; the server's log says why\n";
    return lines;
  }

  static HttpResponse UnknownRoute(bool is_known_path) {
    return is_known_path ? Detail(405, "Method Not Allowed") : Detail(404, "Not Found");
  }

  void Run(const Row& row, const std::string& id, const HttpRequest& request,
           const std::shared_ptr<HttpResponder>& responder) {
    try {
      (this->*row.respond)(id, request, responder);
    } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
      logging::Error("cog request failed", {{"path", request.path()}, {"error", e.what()}});
      responder->Send(Detail(500, Caught("request failed", e).message()));
    }
  }

  // Handlers of rows have one signature.  NOLINTBEGIN(performance-unnecessary-value-param)
  void Root(const std::string&, const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->Send(Answer(200, kJson, R"({"docs_url":"/docs","openapi_url":"/openapi.json"})"));
  }

  void Schema(const std::string&, const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->Send(Answer(200, kJson, openapi_));
  }

  void Docs(const std::string&, const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    responder->Send(Answer(200, "text/html; charset=utf-8", DocsPage()));
  }

  void HealthCheck(const std::string&, const HttpRequest&,
                   std::shared_ptr<HttpResponder> responder) {
    std::string body;
    json::Writer out(body);
    const std::optional<SetUp> ended = set_up();
    out.BeginObject().Key("status").String(Health(ended)).Key("setup").BeginObject();
    if (ended) {
      const auto began = std::chrono::floor<std::chrono::microseconds>(options_.started_at);
      out.Key("started_at").String(IsoFormat(began));
      out.Key("completed_at").String(IsoFormat(ended->completed_at));
      out.Key("logs").String(ended->failures);
      out.Key("status").String(ended->failures.empty() ? "succeeded" : "failed");
    }
    out.EndObject().EndObject();
    responder->Send(Answer(200, kJson, std::move(body)));
  }

  void Shutdown(const std::string&, const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
    logging::Info("shutdown requested via http");
    if (options_.shutdown) responder->OnSent(options_.shutdown);
    responder->Send(Answer(200, kJson, "{}"));
  }

  void Cancel(const std::string& id, const HttpRequest& request,
              std::shared_ptr<HttpResponder> responder) {
    const auto prediction = predictions_->Find(IdentityOf(request.caller), id);
    if (prediction) prediction->Cancel();
    responder->Send(Answer(prediction ? 200 : 404, kJson, "{}"));
  }

  void Predict(const std::string&, const HttpRequest& request,
               std::shared_ptr<HttpResponder> responder) {
    MemoryCharge charge(request.memory);
    if (auto parsed = Parse(request, charge, *responder))
      Begin(*std::move(parsed), std::move(charge), request, responder);
  }

  void PredictOnce(const std::string& id, const HttpRequest& request,
                   std::shared_ptr<HttpResponder> responder) {
    MemoryCharge charge(request.memory);
    auto parsed = Parse(request, charge, *responder);
    if (!parsed) return;
    if (parsed->id && *parsed->id != id) {
      const FieldError mismatch{
          {"id"}, "prediction ID must match the ID supplied in the URL", "value_error", {}};
      return responder->Send(Misfit({&mismatch, 1}));
    }
    parsed->id = id;
    if (const auto running = predictions_->Find(IdentityOf(request.caller), id)) {
      if (WantsEvents(request)) return running->Stream(responder);
      return responder->Send(Answer(202, kJson, running->ToJson()));
    }
    Begin(*std::move(parsed), std::move(charge), request, responder);
  }
  // NOLINTEND(performance-unnecessary-value-param)

  // Unset: it is answered. `charge` is for what a prediction holds of its body.
  std::optional<PredictionRequest> Parse(const HttpRequest& request, MemoryCharge& charge,
                                         HttpResponder& responder) {
    constexpr size_t kCopies = 2;  // of each member: one that is read, and one that is echoed
    if (const Status room = charge.Resize(request.body->size() * kCopies); !room.ok()) {
      responder.Send(NoRoom(room));
      return std::nullopt;
    }
    std::vector<FieldError> errors;
    PredictionRequest parsed;
    if (!request.body->empty() && !IsJson(request)) {
      errors.push_back({{}, "value is not a valid dict", "type_error.dict", {}});
    } else if (request.body->empty()) {
      errors.push_back({{}, "field required", "value_error.missing", {}});
    } else {
      parsed = ParsePredictionRequest(*request.body, options_.predictor.defaults, errors);
    }
    if (errors.empty()) return parsed;
    responder.Send(Misfit(errors));
    return std::nullopt;
  }

  void Begin(PredictionRequest parsed, MemoryCharge charge, const HttpRequest& request,
             const std::shared_ptr<HttpResponder>& responder) {
    const auto model = set_up() ? ReadyModel() : nullptr;
    if (model == nullptr) return responder->Send(Busy());  // it is being set up
    PredictionStart start{.request = std::move(parsed)};
    if (!start.request.webhook.empty()) {
      auto webhook = webhooks_->Open(start.request.webhook, start.request.events);
      if (!webhook.ok()) {
        const FieldError refused{
            {"webhook"}, webhook.status().message(), "value_error.url.host", {}};
        return responder->Send(Misfit({&refused, 1}));
      }
      start.webhook = *std::move(webhook);
    }
    start.ends_unwatched = !PrefersAsync(request) && start.webhook == nullptr;
    start.logs_performance = options_.predictor.logs_performance ||
                             start.request.inputs[kLogPerformanceMetrics] == InputValue(true);
    const Status readable = CheckAnswers(*model).WithPrefix("E2100 TritonUnknownError");
    auto call = readable.ok() ? MakeModelCall(start.request.inputs, options_.predictor,
                                              model->config(), RandomSeed(), charge)
                              : Result<ModelCall>(readable);
    if (call.status().code() == StatusCode::kResourceExhausted)
      return responder->Send(NoRoom(call.status()));
    Result<serving::Request> asked = call.ok() ? MakeRequest(*model, call->body, request)
                                               : Result<serving::Request>(call.status());
    start.cancel = asked.ok() ? asked->cancel : std::make_shared<serving::CancelToken>();
    if (call.ok()) {
      (void)charge.Resize(charge.bytes() - call->prompt.size() * kBytesPerPromptJson);
      call->body = {};
      start.prompt = std::move(call->prompt);
      start.seed = call->seed;
    }
    start.charge = std::move(charge);
    const auto prediction = predictions_->Add(IdentityOf(request.caller), std::move(start));
    if (prediction == nullptr) return responder->Send(Busy());
    prediction->Begin();
    Watch(*prediction, request, responder);
    if (!asked.ok())
      return prediction->Fail(call.ok() ? ModelErrorText(asked.status())
                                        : asked.status().message());
    const bool has_prompt = !model->decoupled();
    server_.Infer(model, *std::move(asked),
                  [prediction, has_prompt](const serving::Response& response) {
                    prediction->OnResponse(response, has_prompt);
                  });
  }

  static void Watch(Prediction& prediction, const HttpRequest& request,
                    const std::shared_ptr<HttpResponder>& responder) {
    if (WantsEvents(request)) return prediction.Stream(responder);
    if (!PrefersAsync(request)) return prediction.AnswerAtEnd(responder);
    responder->Send(Answer(202, kJson, prediction.ToJson()));
  }

  Result<serving::Request> MakeRequest(const serving::Model& model, const std::string& body,
                                       const HttpRequest& request) {
    MemoryCharge charge(request.memory);
    RETURN_IF_ERROR(charge.Resize(body.size() * kserve_http::kTensorBytesPerJsonByte));
    ASSIGN_OR_RETURN(auto asked,
                     kserve_http::ParseGenerate(model.config(), body, options_.max_input_bytes));
    asked.model_name = model.name();
    asked.received_ns = Clock::System().NowNs();
    asked.memory = request.memory;
    asked.client = request.caller;
    asked.tally = request.tally;
    asked.charge = std::make_shared<const MemoryCharge>(std::move(charge));
    asked.wants_one_response = !model.decoupled();
    asked.wants_text = true;
    asked.trace = kserve_http::SampleTrace(server_, model.name(), request);
    return asked;
  }

  // Null: it is not loaded, or not ready.
  std::shared_ptr<serving::Model> ReadyModel() const {
    const auto model = Model();
    return model.ok() && (*model)->ready() ? *model : nullptr;
  }

  std::string_view Health(const std::optional<SetUp>& ended) const {
    if (!server_.live()) return "DEFUNCT";
    if (!ended) return "STARTING";
    if (ReadyModel() != nullptr) return predictions_->IsFull() ? "BUSY" : "READY";
    return ended->failures.empty() ? "STARTING" : "SETUP_FAILED";
  }

  // As cog-triton chooses it.
  int64_t RandomSeed() {
    const std::lock_guard lock(random_mutex_);
    return std::uniform_int_distribution<int64_t>(0, 99'999)(random_);
  }

  serving::Server& server_;
  const CogOptions options_;
  const std::string openapi_;
  const http_listener::Router router_ =
      http_listener::Router::Of(Rows(), http_listener::Implied::kNothing);  // as cog's own server
  const std::shared_ptr<Predictions> predictions_;
  const std::unique_ptr<WebhookCaller> webhooks_;
  mutable std::mutex set_up_mutex_;
  std::optional<SetUp> set_up_;  // none: models are being loaded
  std::mutex random_mutex_;
  std::mt19937_64 random_;
  WorkerPool large_bodies_{1, "http-body"};  // last: its tasks use the members above
};

CogServer::CogServer(std::unique_ptr<Handler> handler, Handler& same)
    : ListeningServer(std::move(handler)), handler_(same) {}

CogServer::~CogServer() = default;

Status CogServer::EndSetUp() { return handler_.EndSetUp(); }

void CogServer::DrainWebhooks(std::chrono::milliseconds budget) { handler_.DrainWebhooks(budget); }

Result<std::unique_ptr<CogServer>> CogServer::Start(serving::Server& server, CogOptions options) {
  ASSIGN_OR_RETURN(auto webhooks, WebhookCaller::Start(options.webhooks));
  const http_listener::ListenerOptions listener = options.listener;
  options.predictor.max_prompt_bytes = options.max_input_bytes;  // of which it is an input
  auto handler = std::make_unique<Handler>(server, std::move(options), std::move(webhooks));
  Handler& same = *handler;
  std::unique_ptr<CogServer> cog(new CogServer(std::move(handler), same));
  RETURN_IF_ERROR(cog->Listen(listener));
  return cog;
}

}  // namespace inflight::cog

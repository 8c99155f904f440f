// SPDX-License-Identifier: Apache-2.0
// POST .../generate and .../generate_stream (docs/reference/protocol/http.md).
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "json/json_writer.h"
#include "protocol/http_listener/event_stream.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/generate_json.h"
#include "protocol/kserve/http/load_report.h"
#include "protocol/kserve/http/response.h"
#include "protocol/kserve/http/tensor_json.h"
#include "protocol/kserve/http/traced.h"
#include "protocol/kserve/http/unknown_members.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpResponder;

constexpr std::string_view kNotOneResponse =
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses";

// Responses of one call come one after the other, so nothing here is locked. A refusal, found
// before the model ran, is answered like any error; a result of the model in the endpoint's form.
class GenerateCall {
 public:
  struct Options {
    bool is_decoupled = false;
    std::optional<LoadReport> load_report;
    std::string warning = {};  // of members without effect; a header of the answer
    std::shared_ptr<AccountShare> memory = {};
  };

  GenerateCall(serving::Server& server, std::shared_ptr<HttpResponder> responder, Options options)
      : server_(server),
        responder_(std::move(responder)),
        options_(std::move(options)),
        charge_(options_.memory) {}
  virtual ~GenerateCall() = default;

  void Run(std::shared_ptr<serving::Model> model, serving::Request request,
           const std::shared_ptr<GenerateCall>& self) {
    trace_ = request.trace;
    server_.Infer(std::move(model), std::move(request),
                  [self](const serving::Response& response) { self->OnResponse(response); });
  }

 protected:
  virtual void OnResult(const serving::Response& response) = 0;
  virtual void OnEnd() = 0;

  // The response as JSON; an error, also one of writing, as {"error": ...}.
  Status Write(const serving::Response& response, std::string& out) {
    Status status = response.status;
    if (status.ok()) status = Charge(response);
    if (status.ok()) status = writer_.Write(response, out);
    if (!status.ok()) out.append(json::ErrorBody(status.message()));
    return status;
  }

  void StartStream(const Status& status, std::string_view content_type) {
    http_listener::Headers headers = {{"Content-Type", std::string(content_type)}};
    AddRetryAfter(status, headers);
    if (options_.load_report) AddLoadReport(server_, *options_.load_report, headers);
    if (!options_.warning.empty()) headers.emplace_back("Inflight-Warning", options_.warning);
    responder_->StartStream(HttpStatus(status), headers);
  }

  serving::Server& server_;
  const std::shared_ptr<HttpResponder> responder_;
  int num_responses_ = 0;

 private:
  // What the response may take as JSON, of which a stream keeps the largest.
  Status Charge(const serving::Response& response) {
    size_t bytes = 0;
    for (const serving::Tensor& tensor : response.outputs) bytes += MostJsonBytes(tensor);
    return bytes <= kUnchargedJsonBytes ? Status::Ok() : charge_.Reserve(bytes);
  }

  void OnResponse(const serving::Response& response) {
    if (response.rejected) return responder_->Send(Error(response.status));
    const bool is_bare_end = options_.is_decoupled && response.is_final && response.status.ok() &&
                             response.outputs.empty() && !response.has_answer;
    if (!is_bare_end) {
      ++num_responses_;
      trace_.Mark("INFER_RESPONSE_COMPLETE");
      OnResult(response);
    }
    if (!response.is_final) return;
    TraceSending(trace_, *responder_);
    OnEnd();
  }

  const Options options_;
  GenerateWriter writer_;
  MemoryCharge charge_;
  serving::Trace trace_;
};

// Chunked although it is one object: the status goes out with the first response.
class UnaryCall : public GenerateCall {
 public:
  using GenerateCall::GenerateCall;

 private:
  void OnResult(const serving::Response& response) override {
    if (num_responses_ > 1) return;
    status_ = Write(response, body_);
  }

  void OnEnd() override {
    StartStream(status_, kJson);
    responder_->WriteChunk(num_responses_ == 1 ? body_ : json::ErrorBody(kNotOneResponse));
    responder_->Finish();
  }

  Status status_;  // of the first response
  std::string body_;
};

// data: <json>\n\n for each response.
class StreamCall : public GenerateCall {
 public:
  using GenerateCall::GenerateCall;

 private:
  void OnResult(const serving::Response& response) override {
    event_.clear();
    http_listener::BeginEvent(event_);
    const Status status = Write(response, event_);
    http_listener::EndEvent(event_);
    if (num_responses_ == 1) StartStream(status, kEventStream);
    responder_->WriteChunk(event_);
  }

  void OnEnd() override {
    if (num_responses_ == 0) StartStream(Status::Ok(), kEventStream);
    responder_->Finish();
  }

  std::string event_;  // kept, so that a chunk costs no allocation
};

void Generate(const Context& context, const Route& route, bool is_stream,
              const http_listener::HttpRequest& request, std::shared_ptr<HttpResponder> responder) {
  const int64_t received_ns = Clock::System().NowNs();
  const auto model = context.server.FindModel(route.model, route.version);
  if (!model.ok()) return responder->Send(Error(model.status()));
  const std::string* coding = request.FindHeader("Content-Encoding");
  if (coding != nullptr && *coding != "identity") {
    return responder->Send(
        Error(InvalidArgument("Unsupported content-encoding, only 'identity' is supported.")));
  }
  MemoryCharge charge(request.memory);
  const Status room = charge.Resize(request.body->size() * kTensorBytesPerJsonByte);
  if (!room.ok()) return responder->Send(Error(room));
  auto parsed = ParseGenerate((*model)->config(), *request.body, context.max_input_bytes);
  if (!parsed.ok()) return responder->Send(Error(parsed.status()));
  std::string unknown = UnknownMembers(**model, parsed->parameters);
  if (context.strict_parameters && !unknown.empty())
    return responder->Send(Error(InvalidArgument(unknown)));
  parsed->model_name = route.model;
  parsed->model_version = route.version;
  parsed->received_ns = received_ns;
  parsed->memory = request.memory;
  parsed->client = request.caller;
  parsed->tally = request.tally;
  parsed->charge = std::make_shared<const MemoryCharge>(std::move(charge));
  parsed->wants_one_response = !is_stream;
  parsed->trace = SampleTrace(context.server, route.model, request);

  responder->OnDisconnect([cancel = parsed->cancel] { cancel->Cancel(); });
  GenerateCall::Options options = {.is_decoupled = (*model)->decoupled(),
                                   .load_report = AskedLoadReport(request),
                                   .warning = std::move(unknown),
                                   .memory = request.memory};
  std::shared_ptr<GenerateCall> call;
  if (is_stream) {
    call = std::make_shared<StreamCall>(context.server, std::move(responder), std::move(options));
  } else {
    call = std::make_shared<UnaryCall>(context.server, std::move(responder), std::move(options));
  }
  call->Run(*model, *std::move(parsed), call);
}

}  // namespace

void HandleGenerate(const Context& context, const Route& route,
                    const http_listener::HttpRequest& request,
                    std::shared_ptr<HttpResponder> responder) {
  Generate(context, route, /*is_stream=*/false, request, std::move(responder));
}

void HandleGenerateStream(const Context& context, const Route& route,
                          const http_listener::HttpRequest& request,
                          std::shared_ptr<HttpResponder> responder) {
  Generate(context, route, /*is_stream=*/true, request, std::move(responder));
}

}  // namespace inflight::kserve_http

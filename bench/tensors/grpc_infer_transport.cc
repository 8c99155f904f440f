// SPDX-License-Identifier: Apache-2.0
// ModelInfer and ModelStreamInfer with any tensors, on one connection. What making and reading
// messages costs the client is in its report.
#include <algorithm>
#include <memory>
#include <utility>

#include "bench/load/requests.h"
#include "bench/tensors/infer_requests.h"
#include "grpc_service.pb.h"
#include "protocol/grpc_client/grpc_client.h"

namespace inflight::bench {
namespace {

using grpc_client::GrpcClient;
using grpc_client::GrpcEnd;
using grpc_client::GrpcListener;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

template <typename Tensor>
void PlaceIn(const Placement& placement, int64_t offset, int64_t byte_size, Tensor& tensor) {
  auto& parameters = *tensor.mutable_parameters();
  parameters["shared_memory_region"].set_string_param(placement.region);
  parameters["shared_memory_offset"].set_int64_param(offset);
  parameters["shared_memory_byte_size"].set_int64_param(byte_size);
}

ModelInferRequest MakeRequest(const ServedModel& model, const Payload& payload,
                              const Placement* placement, size_t payload_idx) {
  ModelInferRequest request;
  request.set_model_name(model.name);
  request.set_model_version(model.version);
  for (size_t i = 0; i < payload.size(); ++i) {
    auto& input = *request.add_inputs();
    input.set_name(payload[i].name);
    input.set_datatype(payload[i].datatype);
    for (const int64_t dim : payload[i].shape) input.add_shape(dim);
    if (placement == nullptr)
      request.add_raw_input_contents(payload[i].bytes);
    else
      PlaceIn(*placement, placement->inputs[payload_idx][i],
              static_cast<int64_t>(payload[i].bytes.size()), input);
  }
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    auto& output = *request.add_outputs();
    output.set_name(model.outputs[i].name);
    if (placement != nullptr)
      PlaceIn(*placement, placement->outputs[i], placement->output_bytes, output);
  }
  return request;
}

template <typename Message>
bool Parse(std::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

std::string KindOf(const GrpcEnd& end) {
  return ErrorKind("gRPC " + std::to_string(end.code), end.message);
}

// What both ways of calling share.
class InferTransport : public LoadTransport {
 public:
  InferTransport(const LoadOptions& options, const ServedModel& model,
                 const std::vector<Payload>& payloads, const Placement* placement)
      : options_(options), client_(options.host, options.port) {
    for (size_t i = 0; i < payloads.size(); ++i)
      requests_.push_back(MakeRequest(model, payloads[i], placement, i));
  }

  int Poll(int64_t until_ns) override {
    while (num_ended_ == 0 && LoadNowNs() < until_ns) client_.Poll(until_ns);
    return std::exchange(num_ended_, 0);
  }

 protected:
  ModelInferRequest& RequestOf(size_t index, const SequenceStep& step) {
    ModelInferRequest& request = requests_[index % requests_.size()];
    if (step.id == 0) return request;
    auto& parameters = *request.mutable_parameters();
    parameters["sequence_id"].set_int64_param(static_cast<int64_t>(step.id));
    parameters["sequence_start"].set_bool_param(step.is_start);
    parameters["sequence_end"].set_bool_param(step.is_end);
    return request;
  }

  void End(RequestOutcome& outcome, std::string error) {
    outcome.end_ns = LoadNowNs();
    outcome.error = std::move(error);
    ++num_ended_;
  }

  const LoadOptions& options_;
  GrpcClient client_;  // tells calls nothing when it goes

 private:
  std::vector<ModelInferRequest> requests_;
  int num_ended_ = 0;
};

class UnaryTransport : public InferTransport {
 public:
  using InferTransport::InferTransport;

  void Start(size_t index, RequestOutcome& outcome) override {
    Call& call = IdleCall();
    call.outcome = &outcome;
    call.is_right = false;
    outcome.sent_ns = LoadNowNs();
    const std::string bytes = RequestOf(index, outcome.sequence).SerializeAsString();
    outcome.written_ns = LoadNowNs();
    client_.Start("/inference.GRPCInferenceService/ModelInfer", bytes, /*is_only=*/true, call,
                  outcome.sent_ns + options_.timeout_ms * 1'000'000);
  }

 private:
  struct Call : GrpcListener {
    explicit Call(UnaryTransport& transport_of) : transport(transport_of) {}

    void OnMessage(std::string_view bytes) override {
      outcome->answer_ns = LoadNowNs();
      is_right = Parse(bytes, transport.response_);
    }
    void OnEnd(const GrpcEnd& end) override { transport.Take(*this, end); }

    UnaryTransport& transport;
    bool is_right = false;
    RequestOutcome* outcome = nullptr;  // null: idle
  };

  Call& IdleCall() {
    for (const auto& call : calls_)
      if (call->outcome == nullptr) return *call;
    return *calls_.emplace_back(std::make_unique<Call>(*this));
  }

  void Take(Call& call, const GrpcEnd& end) {
    RequestOutcome& outcome = *std::exchange(call.outcome, nullptr);
    if (end.code != 0) return End(outcome, KindOf(end));
    outcome.num_chunks = 1;
    End(outcome, call.is_right ? "" : "answer: no ModelInferResponse");
  }

  std::vector<std::unique_ptr<Call>> calls_;
  ModelInferResponse response_;
};

class StreamTransport : public InferTransport {
 public:
  using InferTransport::InferTransport;

  void Start(size_t index, RequestOutcome& outcome) override {
    Stream& stream = IdleStream();
    stream.outcome = &outcome;
    stream.id = std::to_string(++last_id_);
    ModelInferRequest& request = RequestOf(index, outcome.sequence);
    request.set_id(stream.id);
    (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
    outcome.sent_ns = LoadNowNs();
    const std::string bytes = request.SerializeAsString();
    outcome.written_ns = LoadNowNs();
    if (stream.call != 0) return client_.Write(stream.call, bytes);
    stream.call = client_.Start("/inference.GRPCInferenceService/ModelStreamInfer", bytes,
                                /*is_only=*/false, stream, /*deadline_ns=*/0);
  }

  int Poll(int64_t until_ns) override {
    const int num_ended = InferTransport::Poll(until_ns);
    const int64_t now = LoadNowNs();
    if (now < next_check_ns_) return num_ended;
    next_check_ns_ = now + 100'000'000;
    for (const auto& stream : streams_)
      if (stream->outcome != nullptr &&
          now - stream->outcome->sent_ns > options_.timeout_ms * 1'000'000)
        client_.Cancel(stream->call);
    return num_ended;
  }

 private:
  struct Stream : GrpcListener {
    explicit Stream(StreamTransport& transport_of) : transport(transport_of) {}

    void OnMessage(std::string_view bytes) override { transport.Take(*this, bytes); }
    void OnEnd(const GrpcEnd& end) override {
      is_lost = true;
      if (outcome != nullptr)
        transport.End(*std::exchange(outcome, nullptr),
                      end.code == 0 ? "stream: ended by the server" : KindOf(end));
    }

    StreamTransport& transport;
    GrpcClient::CallId call = 0;        // 0: not begun
    bool is_lost = false;               // it ended, and is not used again
    std::string error;                  // the first of the request under way
    std::string id;                     // of the request under way
    RequestOutcome* outcome = nullptr;  // null: idle
    int64_t last_ns = 0;                // of its last response
  };

  Stream& IdleStream() {
    for (const auto& stream : streams_)
      if (stream->outcome == nullptr && !stream->is_lost) return *stream;
    return *streams_.emplace_back(std::make_unique<Stream>(*this));
  }

  void Take(Stream& stream, std::string_view bytes) {
    const int64_t now = LoadNowNs();
    const bool is_right = Parse(bytes, response_);
    if (stream.outcome == nullptr || response_.infer_response().id() != stream.id) return;
    RequestOutcome& outcome = *stream.outcome;
    outcome.answer_ns = now;
    if (response_.infer_response().outputs_size() > 0) {
      if (outcome.first_ns == 0)
        outcome.first_ns = now;
      else
        outcome.gaps_ns.push_back(now - stream.last_ns);
      stream.last_ns = now;
      ++outcome.num_chunks;
    }
    const auto& parameters = response_.infer_response().parameters();
    const auto final = parameters.find("triton_final_response");
    const bool is_error = !response_.error_message().empty();
    if (is_error && stream.error.empty())
      stream.error = ErrorKind("stream", response_.error_message());
    // An error of a request that was not executed ends it without the mark.
    const bool is_last = final != parameters.end() ? final->second.bool_param() : is_error;
    if (!is_right) stream.error = "answer: no ModelStreamInferResponse";
    if (is_last || !is_right)
      End(*std::exchange(stream.outcome, nullptr), std::exchange(stream.error, {}));
  }

  std::vector<std::unique_ptr<Stream>> streams_;
  ModelStreamInferResponse response_;
  int64_t last_id_ = 0;
  int64_t next_check_ns_ = 0;
};

}  // namespace

Result<std::unique_ptr<LoadTransport>> CreateGrpcInferTransport(
    const LoadOptions& options, const ServedModel& model, const std::vector<Payload>& payloads,
    const Placement* placement, bool is_streaming) {
  std::unique_ptr<LoadTransport> transport;
  if (is_streaming)
    transport = std::make_unique<StreamTransport>(options, model, payloads, placement);
  else
    transport = std::make_unique<UnaryTransport>(options, model, payloads, placement);
  return transport;
}

}  // namespace inflight::bench

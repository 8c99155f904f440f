// SPDX-License-Identifier: Apache-2.0
// ModelInfer and ModelStreamInfer with any tensors, on one channel and one completion queue.
//
// Messages are made and read here rather than by the generated stubs, so that what they cost the
// client is in its report.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <utility>

#include "bench/load/grpc_events.h"
#include "bench/load/requests.h"
#include "bench/tensors/infer_requests.h"
#include "grpc_service.pb.h"

namespace inflight::bench {
namespace {

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

grpc::ByteBuffer Bytes(const ModelInferRequest& request) {
  grpc::ByteBuffer bytes;
  bool is_owned = false;
  (void)grpc::SerializationTraits<ModelInferRequest>::Serialize(request, &bytes, &is_owned);
  return bytes;
}

template <typename Message>
bool Parse(grpc::ByteBuffer& bytes, Message& message) {
  return grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok();
}

std::string KindOf(const grpc::Status& status) {
  return ErrorKind("gRPC " + std::to_string(status.error_code()), status.error_message());
}

// What both ways of calling share.
class InferTransport : public LoadTransport {
 public:
  InferTransport(const LoadOptions& options, const ServedModel& model,
                 const std::vector<Payload>& payloads, const Placement* placement)
      : options_(options),
        stub_(grpc::CreateChannel(options.host + ":" + std::to_string(options.port),
                                  grpc::InsecureChannelCredentials())) {
    for (size_t i = 0; i < payloads.size(); ++i)
      requests_.push_back(MakeRequest(model, payloads[i], placement, i));
  }

  int Poll(int64_t until_ns) override {
    if (num_ended_ > 0) return std::exchange(num_ended_, 0);  // where they were begun
    return PollEvents(queue_, until_ns, [this](void* tag, bool ok) {
      Handle(tag, ok);
      return std::exchange(num_ended_, 0);
    });
  }

 protected:
  virtual void Handle(void* tag, bool ok) = 0;

  // No operation may be begun afterwards.
  void Drain() {
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

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
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;

 private:
  std::vector<ModelInferRequest> requests_;
  int num_ended_ = 0;
};

class UnaryTransport : public InferTransport {
 public:
  using InferTransport::InferTransport;
  ~UnaryTransport() override {
    for (const auto& call : calls_)
      if (call->outcome != nullptr) call->context->TryCancel();
    Drain();
  }

  void Start(size_t index, RequestOutcome& outcome) override {
    Call& call = IdleCall();
    call.outcome = &outcome;
    call.context = std::make_unique<grpc::ClientContext>();
    call.context->set_deadline(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(options_.timeout_ms));
    call.answer.Clear();
    outcome.sent_ns = LoadNowNs();
    const grpc::ByteBuffer bytes = Bytes(RequestOf(index, outcome.sequence));
    outcome.written_ns = LoadNowNs();
    call.reader = stub_.PrepareUnaryCall(
        call.context.get(), "/inference.GRPCInferenceService/ModelInfer", bytes, &queue_);
    call.reader->StartCall();
    call.reader->Finish(&call.answer, &call.status, &call);
  }

 private:
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
    RequestOutcome* outcome = nullptr;  // null: idle
  };

  Call& IdleCall() {
    for (const auto& call : calls_)
      if (call->outcome == nullptr) return *call;
    return *calls_.emplace_back(std::make_unique<Call>());
  }

  void Handle(void* tag, bool /*ok*/) override {
    Call& call = *static_cast<Call*>(tag);
    RequestOutcome& outcome = *std::exchange(call.outcome, nullptr);
    if (!call.status.ok()) return End(outcome, KindOf(call.status));
    outcome.answer_ns = LoadNowNs();
    const bool is_right = Parse(call.answer, response_);
    outcome.num_chunks = 1;
    End(outcome, is_right ? "" : "answer: no ModelInferResponse");
  }

  std::vector<std::unique_ptr<Call>> calls_;
  ModelInferResponse response_;
};

class StreamTransport : public InferTransport {
 public:
  using InferTransport::InferTransport;
  ~StreamTransport() override {
    for (const auto& stream : streams_) stream->context.TryCancel();
    Drain();
  }

  void Start(size_t index, RequestOutcome& outcome) override {
    Stream& stream = IdleStream();
    stream.outcome = &outcome;
    stream.id = std::to_string(++last_id_);
    ModelInferRequest& request = RequestOf(index, outcome.sequence);
    request.set_id(stream.id);
    (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
    outcome.sent_ns = LoadNowNs();
    stream.request = Bytes(request);
    outcome.written_ns = LoadNowNs();
    if (stream.is_open)
      stream.call->Write(stream.request, &stream.written);
    else if (stream.call == nullptr)
      Open(stream);
  }

  int Poll(int64_t until_ns) override {
    const int num_ended = InferTransport::Poll(until_ns);
    const int64_t now = LoadNowNs();
    if (now < next_check_ns_) return num_ended;
    next_check_ns_ = now + 100'000'000;
    for (const auto& stream : streams_)  // ends as a failed read
      if (stream->outcome != nullptr &&
          now - stream->outcome->sent_ns > options_.timeout_ms * 1'000'000)
        stream->context.TryCancel();
    return num_ended;
  }

 private:
  enum class Operation { kOpen, kWrite, kRead, kFinish };
  struct Stream;
  struct Tag {
    Stream* stream;
    Operation operation;
  };
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    grpc::ByteBuffer request, answer;
    grpc::Status status;
    bool is_open = false;
    bool is_lost = false;               // it ended, and is not used again
    std::string error;                  // the first of the request under way
    std::string id;                     // of the request under way
    RequestOutcome* outcome = nullptr;  // null: idle
    int64_t last_ns = 0;                // of its last response
    Tag opened{this, Operation::kOpen}, written{this, Operation::kWrite},
        read{this, Operation::kRead}, finished{this, Operation::kFinish};
  };

  Stream& IdleStream() {
    for (const auto& stream : streams_)
      if (stream->outcome == nullptr && !stream->is_lost) return *stream;
    return *streams_.emplace_back(std::make_unique<Stream>());
  }

  void Open(Stream& stream) {
    stream.call = stub_.PrepareCall(&stream.context,
                                    "/inference.GRPCInferenceService/ModelStreamInfer", &queue_);
    stream.call->StartCall(&stream.opened);
  }

  void Handle(void* tag, bool ok) override {
    const Tag& done = *static_cast<Tag*>(tag);
    Stream& stream = *done.stream;
    switch (done.operation) {
      case Operation::kOpen:
        if (ok) {
          stream.is_open = true;
          stream.call->Write(stream.request, &stream.written);
          stream.call->Read(&stream.answer, &stream.read);
        } else {
          stream.call->Finish(&stream.status, &stream.finished);
        }
        return;
      case Operation::kWrite:
        return;  // what was lost shows as a failed read
      case Operation::kRead:
        if (ok) {
          Take(stream);
          stream.call->Read(&stream.answer, &stream.read);
        } else {
          stream.call->Finish(&stream.status, &stream.finished);
        }
        return;
      case Operation::kFinish:
        stream.is_lost = true;
        if (stream.outcome != nullptr)
          End(*std::exchange(stream.outcome, nullptr),
              stream.status.ok() ? "stream: ended by the server" : KindOf(stream.status));
    }
  }

  void Take(Stream& stream) {
    const int64_t now = LoadNowNs();
    const bool is_right = Parse(stream.answer, response_);
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

// SPDX-License-Identifier: Apache-2.0
// ModelStreamInfer over gRPC: a stream for each request, all of one channel and one completion
// queue.
#include <grpcpp/grpcpp.h>

#include <utility>

#include "bench/load/grpc_events.h"
#include "bench/load/load.h"
#include "bench/load/requests.h"
#include "grpc_service.grpc.pb.h"

namespace inflight::bench {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;

void AddTensor(ModelInferRequest& request, const char* name, const char* datatype, int64_t size,
               std::string bytes) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(datatype);
  input.add_shape(1);
  input.add_shape(size);
  request.add_raw_input_contents(std::move(bytes));
}

// Little endian, as the protocol wants it and this machine has it.
std::string Int32Bytes(const int32_t* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(int32_t)};
}

void AddInt(ModelInferRequest& request, const char* name, int32_t value) {
  AddTensor(request, name, "INT32", 1, Int32Bytes(&value, 1));
}

ModelInferRequest MakeRequest(const LoadOptions& options, const LoadPrompt& prompt) {
  ModelInferRequest request;
  request.set_model_name(options.model);
  if (prompt.ids.empty()) {
    const auto size = static_cast<int32_t>(prompt.text.size());
    AddTensor(request, "text_input", "BYTES", 1, Int32Bytes(&size, 1) + prompt.text);
    AddInt(request, "max_tokens", prompt.output_len);
    AddTensor(request, "stream", "BOOL", 1, std::string(1, '\1'));
  } else {
    AddTensor(request, "input_ids", "INT32", static_cast<int64_t>(prompt.ids.size()),
              Int32Bytes(prompt.ids.data(), prompt.ids.size()));
    AddInt(request, "input_lengths", static_cast<int32_t>(prompt.ids.size()));
    AddInt(request, "request_output_len", prompt.output_len);
    AddTensor(request, "streaming", "BOOL", 1, std::string(1, '\1'));
  }
  if (options.ignore_end) AddInt(request, "end_id", -1);
  return request;
}

class GrpcTransport : public LoadTransport {
 public:
  GrpcTransport(const LoadOptions& options, const std::vector<LoadPrompt>& prompts)
      : options_(options), prompts_(prompts) {
    const std::string target = options.host + ":" + std::to_string(options.port);
    channel_ = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
    for (const LoadPrompt& prompt : prompts) requests_.push_back(MakeRequest(options, prompt));
  }

  ~GrpcTransport() override {
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

  void Start(size_t index, RequestOutcome& outcome) override {
    auto* call = new Call{};  // deleted when it ends
    call->index = index;
    call->outcome = &outcome;
    call->context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(options_.timeout_ms));
    outcome.sent_ns = LoadNowNs();
    call->stream = stub_->PrepareAsyncModelStreamInfer(&call->context, &queue_);
    call->stream->StartCall(call);
  }

  int Poll(int64_t until_ns) override {
    return PollEvents(queue_, until_ns, [this](void* tag, bool ok) {
      return Advance(static_cast<Call*>(tag), ok) ? 1 : 0;
    });
  }

 private:
  enum class Phase { kStart, kWrite, kRead, kFinish };

  // One operation is under way at a time, and the call is its tag.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<ModelInferRequest, ModelStreamInferResponse>>
        stream;
    ModelStreamInferResponse response;
    grpc::Status status;
    Phase phase = Phase::kStart;
    size_t index = 0;
    RequestOutcome* outcome = nullptr;
    int64_t last_ns = 0;
    std::string error;
  };

  // Whether the call ended.
  bool Advance(Call* call, bool ok) {
    switch (call->phase) {
      case Phase::kStart:
        if (!ok) break;
        call->phase = Phase::kWrite;
        call->stream->WriteLast(requests_[call->index], grpc::WriteOptions(), call);
        return false;
      case Phase::kWrite:
        if (!ok) break;
        call->phase = Phase::kRead;
        call->stream->Read(&call->response, call);
        return false;
      case Phase::kRead:
        if (!ok) break;
        TakeResponse(*call);
        call->stream->Read(&call->response, call);
        return false;
      case Phase::kFinish: {
        const std::unique_ptr<Call> ended(call);
        call->outcome->end_ns = LoadNowNs();
        if (call->error.empty() && !call->status.ok())
          call->error = ErrorKind("gRPC " + std::to_string(call->status.error_code()),
                                  call->status.error_message());
        call->outcome->error = std::move(call->error);
        return true;
      }
    }
    call->phase = Phase::kFinish;
    call->stream->Finish(&call->status, call);
    return false;
  }

  void TakeResponse(Call& call) {
    const ModelStreamInferResponse& response = call.response;
    if (!response.error_message().empty()) {
      call.error = ErrorKind("stream", response.error_message());
      return;
    }
    const int64_t now = LoadNowNs();
    RequestOutcome& outcome = *call.outcome;
    const int num_tokens = CountTokens(call);
    if (num_tokens == 0) return;
    if (outcome.first_ns == 0)
      outcome.first_ns = now;
    else
      outcome.gaps_ns.push_back(now - call.last_ns);
    call.last_ns = now;
    outcome.num_tokens += num_tokens;
    ++outcome.num_chunks;
  }

  // Ids of the response; of a text model, a response with outputs is a token.
  int CountTokens(const Call& call) const {
    const auto& response = call.response.infer_response();
    if (prompts_[call.index].ids.empty()) return response.outputs_size() > 0 ? 1 : 0;
    for (const auto& output : response.outputs())
      if (output.name() == "output_ids" && output.shape_size() > 0)
        return static_cast<int>(output.shape(output.shape_size() - 1));
    return 0;
  }

  const LoadOptions& options_;
  const std::vector<LoadPrompt>& prompts_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  std::vector<ModelInferRequest> requests_;
  grpc::CompletionQueue queue_;
};

}  // namespace

Result<std::unique_ptr<LoadTransport>> CreateGrpcTransport(const LoadOptions& options,
                                                           const std::vector<LoadPrompt>& prompts) {
  std::unique_ptr<LoadTransport> transport = std::make_unique<GrpcTransport>(options, prompts);
  return transport;
}

}  // namespace inflight::bench

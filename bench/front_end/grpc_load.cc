// SPDX-License-Identifier: Apache-2.0
// gRPC by one completion queue: ModelInfer, and ModelStreamInfer of mock_llm. Messages stay bytes,
// since parsing them would be the client's time.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <memory>

#include "bench/front_end/front_end_load.h"
#include "grpc_service.pb.h"

namespace inflight::bench {
namespace {

using ::grpc::ByteBuffer;

constexpr int kCallsPerConnection = 64;

ByteBuffer BytesOf(const ::inference::ModelInferRequest& request) {
  const ::grpc::Slice slice(request.SerializeAsString());
  return ByteBuffer(&slice, 1);
}

ByteBuffer InferRequest(const FrontEndOptions& options) {
  ::inference::ModelInferRequest request;
  request.set_model_name(options.model);
  auto& input = *request.add_inputs();
  input.set_name("INPUT0");
  input.set_datatype("FP32");
  input.add_shape(1);
  input.add_shape(16);
  request.add_raw_input_contents(std::string(64, '\1'));
  return BytesOf(request);
}

ByteBuffer StreamRequest(const FrontEndOptions& options) {
  ::inference::ModelInferRequest request;
  request.set_model_name(options.model);
  const auto add = [&request](const char* name, const char* type, const std::string& bytes) {
    auto& input = *request.add_inputs();
    input.set_name(name);
    input.set_datatype(type);
    input.add_shape(1);
    input.add_shape(1);
    request.add_raw_input_contents(bytes);
  };
  add("PROMPT", "BYTES", std::string("\5\0\0\0 word", 9));
  add("STREAM", "BOOL", "\1");
  (*request.mutable_parameters())["REPETITION"].set_int64_param(options.repetition);
  (*request.mutable_parameters())["DELAY"].set_double_param(options.delay_s);
  return BytesOf(request);
}

class GrpcLoad {
 public:
  GrpcLoad(const FrontEndOptions& options, Meter& meter)
      : options_(options),
        meter_(meter),
        is_stream_(options.load == FrontEndLoad::kGrpcStream),
        request_(is_stream_ ? StreamRequest(options) : InferRequest(options)) {
    const std::string target = options.host + ":" + std::to_string(options.port);
    const int num_connections =
        (options.concurrency + kCallsPerConnection - 1) / kCallsPerConnection;
    for (int i = 0; i < num_connections; ++i) {
      ::grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection each
      stubs_.push_back(std::make_unique<::grpc::GenericStub>(
          ::grpc::CreateCustomChannel(target, ::grpc::InsecureChannelCredentials(), arguments)));
    }
  }

  std::string Run() {
    meter_.Begin(options_);
    for (int i = 0; i < options_.concurrency; ++i) {
      calls_.push_back(std::make_unique<Call>());
      calls_.back()->stub = stubs_[static_cast<size_t>(i / kCallsPerConnection)].get();
      is_stream_ ? StartStream(*calls_.back()) : StartInfer(*calls_.back());
    }
    while (error_.empty() && !meter_.IsOver()) {
      for (int i = 0; i < 64; ++i) {
        void* tag = nullptr;
        bool ok = false;
        const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(100);
        if (queue_.AsyncNext(&tag, &ok, deadline) != ::grpc::CompletionQueue::GOT_EVENT) break;
        auto& call = *static_cast<Call*>(tag);
        is_stream_ ? OnStream(call, ok) : OnInfer(call);
      }
    }
    Drop();
    return error_;
  }

 private:
  enum class Phase { kStart, kWrite, kRead };

  struct Call {
    ::grpc::GenericStub* stub = nullptr;
    std::unique_ptr<::grpc::ClientContext> context;
    std::unique_ptr<::grpc::GenericClientAsyncReaderWriter> stream;
    std::unique_ptr<::grpc::GenericClientAsyncResponseReader> infer;
    ByteBuffer response;
    ::grpc::Status status;
    Phase phase = Phase::kStart;
    int num_responses = 0;  // of the running request
    int64_t sent_ns = 0;
  };

  void StartInfer(Call& call) {
    call.context = std::make_unique<::grpc::ClientContext>();
    call.sent_ns = MonotonicNs();
    call.infer = call.stub->PrepareUnaryCall(
        call.context.get(), "/inference.GRPCInferenceService/ModelInfer", request_, &queue_);
    call.infer->StartCall();
    call.infer->Finish(&call.response, &call.status, &call);
  }

  void OnInfer(Call& call) {
    if (!call.status.ok()) {
      error_ = call.status.error_message();
      return;
    }
    meter_.CountItems(1);
    meter_.Observe(MonotonicNs() - call.sent_ns);
    StartInfer(call);
  }

  void StartStream(Call& call) {
    call.context = std::make_unique<::grpc::ClientContext>();
    call.stream = call.stub->PrepareCall(
        call.context.get(), "/inference.GRPCInferenceService/ModelStreamInfer", &queue_);
    call.stream->StartCall(&call);
  }

  // The next request follows the last response of the one before on the same stream.
  void OnStream(Call& call, bool ok) {
    if (!ok) {
      error_ = "a stream ended";
      return;
    }
    if (call.phase == Phase::kRead) {
      meter_.CountItems(1);
      ++call.num_responses;
    }
    if (call.phase == Phase::kStart || call.num_responses == options_.repetition) {
      call.phase = Phase::kWrite;
      call.num_responses = 0;
      call.stream->Write(request_, &call);
      return;
    }
    call.phase = Phase::kRead;
    call.stream->Read(&call.response, &call);
  }

  // Calls end with what they wait for, which still comes as an event.
  void Drop() {
    for (const auto& call : calls_) call->context->TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  const FrontEndOptions& options_;
  Meter& meter_;
  const bool is_stream_;
  const ByteBuffer request_;
  std::vector<std::unique_ptr<::grpc::GenericStub>> stubs_;
  ::grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::string error_;
};

}  // namespace

std::string RunGrpcLoad(const FrontEndOptions& options, Meter& meter) {
  return GrpcLoad(options, meter).Run();
}

}  // namespace inflight::bench

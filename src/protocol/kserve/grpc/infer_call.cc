// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/infer_call.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_message.h"
#include "protocol/kserve/grpc/infer_request.h"
#include "protocol/kserve/grpc/infer_response.h"
#include "protocol/kserve/grpc/message_bytes.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::ModelInferRequest;
using ::inference::ModelInferResponse;

// Lives until gRPC reports OnDone, which follows Finish, which follows the final response: the
// handler may therefore point to it.
class InferCall final : public ::grpc::ServerUnaryReactor {
 public:
  InferCall(ActiveCalls& calls, CallMetadata metadata, ::grpc::ByteBuffer& response)
      : calls_(calls), metadata_(std::move(metadata)), response_(response) {}

  void Start(serving::Server& server, int64_t max_message_bytes, ::grpc::ByteBuffer& bytes) {
    const auto entered = calls_.Enter();
    if (!entered.ok()) return Finish(ToGrpcStatus(entered.status()));
    call_id_ = *entered;
    auto message = std::make_shared<ModelInferRequest>();
    MemoryCharge charge(metadata_.share);
    const ParseFailure failure =
        ParseInferMessage(server, bytes, max_message_bytes, charge, *message);
    if (failure != ParseFailure::kNone) return Finish(ToGrpcStatus(failure, max_message_bytes));
    Result<InferRequest> parsed = Parse(server, std::move(message), std::move(charge));
    if (!parsed.ok()) return Finish(ToGrpcStatus(parsed.status()));
    trace_ = parsed->request.trace;
    server.Infer(std::move(model_), std::move(parsed->request),
                 [this](serving::Response response) { OnResponse(std::move(response)); });
  }

  void OnCancel() override { cancel_->Cancel(); }

  void OnDone() override {
    trace_.Mark("GRPC_SEND_END");
    if (call_id_ != 0) calls_.Leave(call_id_);
    delete this;
  }

 private:
  Result<InferRequest> Parse(serving::Server& server,
                             std::shared_ptr<const ModelInferRequest> message,
                             MemoryCharge charge) {
    ASSIGN_OR_RETURN(model_, server.FindModel(message->model_name(), message->model_version()));
    if (!model_->allows_single_response_calls()) return DecoupledModel();
    is_decoupled_ = model_->decoupled();
    const int64_t received_ns = Clock::System().NowNs();
    ASSIGN_OR_RETURN(InferRequest parsed,
                     ParseInferRequest(std::move(message), server.shared_memory(), received_ns,
                                       std::move(charge)));
    parsed.request.cancel = cancel_;
    parsed.request.wants_one_response = true;
    for (auto& [name, value] : metadata_.parameters) {
      parsed.request.parameters[name] = std::move(value);
    }
    parsed.request.trace = server.tracer().Sample(model_->name(), metadata_.trace);
    // A call comes to us read: nobody here waited for it.
    parsed.request.trace.Mark("GRPC_WAITREAD_START", received_ns);
    parsed.request.trace.Mark("GRPC_WAITREAD_END", received_ns);
    return parsed;
  }

  static Status DecoupledModel() {
    return Unimplemented("ModelInfer RPC doesn't support models with decoupled transaction policy");
  }

  void OnResponse(serving::Response response) {
    const bool is_final = single_.Add(std::move(response));
    // A request that asked a decoupled model to stream: more answers would be generated for nobody.
    const bool is_stream = is_decoupled_ && single_.num_answers() > 1;
    if (is_stream) cancel_->Cancel();
    if (!is_final) return;
    trace_.Mark("INFER_RESPONSE_COMPLETE");
    trace_.Mark("GRPC_SEND_START");
    if (is_stream) return Finish(ToGrpcStatus(DecoupledModel()));
    serving::Response& result = single_.result();
    Finish(result.status.ok() ? Write(result) : ToGrpcStatus(result.status));
  }

  ::grpc::Status Write(const serving::Response& result) {
    return FillAndWrite<ModelInferResponse>(
        [&](ModelInferResponse& message) { WriteInferResponse(result, message); }, response_);
  }

  ActiveCalls& calls_;
  ActiveCalls::CallId call_id_ = 0;
  CallMetadata metadata_;
  ::grpc::ByteBuffer& response_;
  serving::Trace trace_;
  // Made here, not by the parser: OnCancel may come before there is a request.
  const std::shared_ptr<serving::CancelToken> cancel_ = std::make_shared<serving::CancelToken>();
  std::shared_ptr<serving::Model> model_;  // until the request runs on it
  bool is_decoupled_ = false;
  SingleResponse single_;
};

}  // namespace

::grpc::ServerUnaryReactor* StartInferCall(serving::Server& server, ActiveCalls& calls,
                                           CallMetadata metadata, int64_t max_message_bytes,
                                           ::grpc::ByteBuffer request,
                                           ::grpc::ByteBuffer& response) {
  auto* call = new InferCall(calls, std::move(metadata), response);
  call->Start(server, max_message_bytes, request);
  return call;
}

}  // namespace inflight::kserve_grpc

// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/infer_call.h"

#include <memory>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/no_memory_left.h"
#include "base/status_macros.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_message.h"
#include "protocol/kserve/grpc/infer_request.h"
#include "protocol/kserve/grpc/infer_response.h"
#include "protocol/kserve/grpc/message_bytes.h"
#include "protocol/kserve/grpc/unary_call.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::ModelInferRequest;
using ::inference::ModelInferResponse;

// The response handler holds it, and so does the listener until OnDone.
class InferCall final : public UnaryReactor, public std::enable_shared_from_this<InferCall> {
 public:
  InferCall(serving::Server& server, ActiveCalls& calls, CallMetadata metadata,
            int64_t max_message_bytes, std::shared_ptr<Rpc> rpc)
      : UnaryReactor(std::move(rpc)),
        server_(server),
        calls_(calls),
        metadata_(std::move(metadata)),
        max_message_bytes_(max_message_bytes) {}

  void OnCancel() override {
    logging::Verbose(
        "Cancellation notification received for ModelInferHandler, rpc_ok=1, context 0, 0 step "
        "ISSUED");
    cancel_->Cancel();
    UnaryReactor::OnCancel();
  }

  void OnDone() override {
    trace_.Mark("GRPC_SEND_END");
    if (call_id_ != 0) calls_.Leave(call_id_);
  }

 private:
  void Handle(grpc_listener::RpcMessage bytes) override {
    const auto entered = calls_.Enter();
    if (!entered.ok()) return rpc_->Finish(ToGrpcStatus(entered.status()));
    call_id_ = *entered;
    auto message = MakeOnArena<ModelInferRequest>();
    MemoryCharge charge(rpc_->share());
    const ParseFailure failure =
        ParseInferMessage(server_, bytes, max_message_bytes_, charge, *message);
    bytes = {};
    if (failure != ParseFailure::kNone) {
      return rpc_->Finish(ToGrpcStatus(failure, max_message_bytes_));
    }
    Result<InferRequest> parsed = Parse(message, std::move(charge));
    if (!parsed.ok()) return rpc_->Finish(ToGrpcStatus(parsed.status()));
    trace_ = parsed->request.trace;
    server_.Infer(std::move(model_), std::move(parsed->request),
                  [self = shared_from_this()](serving::Response response) {
                    try {
                      self->OnResponse(std::move(response));
                    } catch (const std::bad_alloc&) {
                      self->FinishWithoutMemory();
                    }
                  });
  }

  Result<InferRequest> Parse(const std::shared_ptr<const ModelInferRequest>& message,
                             MemoryCharge charge) {
    ASSIGN_OR_RETURN(model_, server_.FindModel(message->model_name(), message->model_version()));
    if (!model_->allows_single_response_calls()) return DecoupledModel();
    is_decoupled_ = model_->decoupled();
    const int64_t received_ns = Clock::System().NowNs();
    ASSIGN_OR_RETURN(
        InferRequest parsed,
        ParseInferRequest(message, server_.shared_memory().Of(IdentityOf(metadata_.caller)),
                          received_ns, std::move(charge)));
    parsed.request.cancel = cancel_;
    parsed.request.wants_one_response = true;
    parsed.request.client = metadata_.caller;
    parsed.request.tally = rpc_->tally();
    for (auto& [name, value] : metadata_.parameters) {
      parsed.request.parameters[name] = std::move(value);
    }
    parsed.request.trace = server_.tracer().Sample(model_->name(), metadata_.trace);
    parsed.request.trace.Mark("GRPC_WAITREAD_START", rpc_->read_started_ns());
    parsed.request.trace.Mark("GRPC_WAITREAD_END", received_ns);
    return parsed;
  }

  void FinishWithoutMemory() {
    try {
      rpc_->Finish(NoMemoryLeft());
    } catch (const std::bad_alloc&) {  // there is not even enough to say so
      rpc_->Lose();
    }
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
    if (is_stream) return rpc_->Finish(ToGrpcStatus(DecoupledModel()));
    const serving::Response result = std::move(single_.result());
    if (!result.status.ok()) return rpc_->Finish(ToGrpcStatus(result.status));
    std::string bytes;
    Status written = FillAndWrite<ModelInferResponse>(
        [&](ModelInferResponse& message) { WriteInferResponse(result, message); }, metadata_.coding,
        bytes);
    if (!written.ok()) bytes = {};
    rpc_->Finish(std::move(written), std::move(bytes));
  }

  serving::Server& server_;
  ActiveCalls& calls_;
  ActiveCalls::CallId call_id_ = 0;
  CallMetadata metadata_;
  const int64_t max_message_bytes_;
  serving::Trace trace_;
  // Made here, not by the parser: OnCancel may come before there is a request.
  const std::shared_ptr<serving::CancelToken> cancel_ = std::make_shared<serving::CancelToken>();
  std::shared_ptr<serving::Model> model_;  // until the request runs on it
  bool is_decoupled_ = false;
  SingleResponse single_;
};

}  // namespace

std::shared_ptr<grpc_listener::RpcReactor> StartInferCall(serving::Server& server,
                                                          ActiveCalls& calls, CallMetadata metadata,
                                                          int64_t max_message_bytes,
                                                          std::shared_ptr<Rpc> rpc) {
  if (metadata.coding != Coding::kIdentity) rpc->SetResponseCoding(metadata.coding);
  rpc->Read();
  return std::make_shared<InferCall>(server, calls, std::move(metadata), max_message_bytes,
                                     std::move(rpc));
}

}  // namespace inflight::kserve_grpc

// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/infer_call.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/infer_request.h"
#include "protocol/kserve/grpc/infer_response.h"

namespace inflight::kserve_grpc {
namespace {

using ::inference::ModelInferRequest;
using ::inference::ModelInferResponse;

// Lives until gRPC reports OnDone, which follows Finish, which follows the final response: the
// handler may therefore point to it.
class InferCall final : public ::grpc::ServerUnaryReactor {
 public:
  InferCall(ActiveCalls& calls, serving::Parameters parameters, ModelInferResponse& response)
      : calls_(calls), parameters_(std::move(parameters)), response_(response) {}

  void Start(serving::Server& server, std::shared_ptr<const ModelInferRequest> message) {
    const auto entered = calls_.Enter();
    if (!entered.ok()) return Finish(ToGrpcStatus(entered.status()));
    call_id_ = *entered;
    Result<InferRequest> parsed = Parse(server, std::move(message));
    if (!parsed.ok()) return Finish(ToGrpcStatus(parsed.status()));
    server.Infer(std::move(parsed->request),
                 [this](serving::Response response) { OnResponse(std::move(response)); });
  }

  void OnCancel() override { cancel_->Cancel(); }

  void OnDone() override {
    if (call_id_ != 0) calls_.Leave(call_id_);
    delete this;
  }

 private:
  Result<InferRequest> Parse(serving::Server& server,
                             std::shared_ptr<const ModelInferRequest> message) {
    ASSIGN_OR_RETURN(const auto model,
                     server.FindModel(message->model_name(), message->model_version()));
    if (!model->allows_single_response_calls()) return DecoupledModel();
    is_decoupled_ = model->decoupled();
    ASSIGN_OR_RETURN(
        InferRequest parsed,
        ParseInferRequest(std::move(message), server.shared_memory(), Clock::System().NowNs()));
    parsed.request.cancel = cancel_;
    parsed.request.wants_one_response = true;
    for (auto& [name, value] : parameters_) parsed.request.parameters[name] = std::move(value);
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
    if (is_stream) return Finish(ToGrpcStatus(DecoupledModel()));
    serving::Response& result = single_.result();
    if (result.status.ok()) WriteInferResponse(result, response_);
    Finish(ToGrpcStatus(result.status));
  }

  ActiveCalls& calls_;
  ActiveCalls::CallId call_id_ = 0;
  serving::Parameters parameters_;
  ModelInferResponse& response_;
  // Made here, not by the parser: OnCancel may come before there is a request.
  const std::shared_ptr<serving::CancelToken> cancel_ = std::make_shared<serving::CancelToken>();
  bool is_decoupled_ = false;
  SingleResponse single_;
};

}  // namespace

::grpc::ServerUnaryReactor* StartInferCall(serving::Server& server, ActiveCalls& calls,
                                           serving::Parameters parameters,
                                           ModelInferRequest& request,
                                           ModelInferResponse& response) {
  auto message = std::make_shared<ModelInferRequest>();
  message->Swap(&request);
  auto* call = new InferCall(calls, std::move(parameters), response);
  call->Start(server, std::move(message));
  return call;
}

}  // namespace inflight::kserve_grpc

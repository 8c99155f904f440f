// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/reflection_call.h"

#include <atomic>
#include <string>
#include <utility>

#include "base/clock.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/message_bytes.h"

namespace inflight::kserve_grpc {
namespace {

using grpc_listener::Rpc;

// Of a request: names have a few dozen bytes, and come back with the response.
constexpr size_t kMaxRequestBytes = 4096;

Status RequestTooLarge() {
  return ResourceExhausted("a request of server reflection has at most " +
                           std::to_string(kMaxRequestBytes) + " bytes");
}

// Threads: reactions come from the listener's threads, one at a time but for OnCancel; Drain from
//          any. Who ends the call first, ends it; what is written after that is dropped.
class ReflectionCall final : public grpc_listener::RpcReactor, public Drainable {
 public:
  ReflectionCall(const Reflection& reflection, ActiveCalls& calls,
                 std::shared_ptr<const Client> caller, std::shared_ptr<Rpc> rpc)
      : reflection_(reflection), calls_(calls), caller_(std::move(caller)), rpc_(std::move(rpc)) {}

  void Begin(const Result<ActiveCalls::CallId>& entered) {
    if (!entered.ok()) return End(ToGrpcStatus(entered.status()));
    call_id_ = *entered;
    rpc_->Read();
  }

  void OnMessage(grpc_listener::RpcMessage message) override {
    Result<std::string> response = ResponseTo(message);
    if (!response.ok()) return End(response.status());
    rpc_->Write(*std::move(response));
  }
  void OnWritten() override { rpc_->Read(); }
  void OnHalfClose() override { End(Status::Ok()); }
  void OnCancel() override { End(Cancelled("the client is gone")); }
  void OnDone() override {
    if (call_id_ != 0) calls_.Leave(call_id_);
  }
  void Drain() override { End(Stopping()); }

 private:
  // With its prefix; or the status that ends the call.
  Result<std::string> ResponseTo(const grpc_listener::RpcMessage& message) const {
    if (message.bytes.size() > kMaxRequestBytes) return RequestTooLarge();
    if (const Status status = TakeRequestOfStream(caller_, Clock::System().NowNs()); !status.ok()) {
      return ToGrpcStatus(status);
    }
    Reflection::Request request;
    MemoryCharge charge(rpc_->share());
    const ParseFailure failure = ParseMessage(message, kMaxRequestBytes, charge, request);
    if (failure == ParseFailure::kTooLarge) return RequestTooLarge();
    if (failure != ParseFailure::kNone) return ToGrpcStatus(failure, kMaxRequestBytes);
    std::string bytes;
    const Status written = FillAndWrite<Reflection::Response>(
        [&](Reflection::Response& response) { reflection_.Answer(request, response); },
        Coding::kIdentity, bytes);
    if (!written.ok()) return written;
    return bytes;
  }

  void End(Status status) {
    if (!has_ended_.exchange(true)) rpc_->Finish(std::move(status));
  }

  const Reflection& reflection_;
  ActiveCalls& calls_;
  const std::shared_ptr<const Client> caller_;
  const std::shared_ptr<Rpc> rpc_;
  ActiveCalls::CallId call_id_ = 0;
  std::atomic<bool> has_ended_{false};
};

}  // namespace

std::shared_ptr<grpc_listener::RpcReactor> StartReflectionCall(const Reflection& reflection,
                                                               ActiveCalls& calls,
                                                               std::shared_ptr<const Client> caller,
                                                               std::shared_ptr<Rpc> rpc) {
  auto call =
      std::make_shared<ReflectionCall>(reflection, calls, std::move(caller), std::move(rpc));
  call->Begin(calls.Enter(call));
  return call;
}

}  // namespace inflight::kserve_grpc

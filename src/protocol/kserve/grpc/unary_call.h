// SPDX-License-Identifier: Apache-2.0
// How unary RPCs are served, whatever their messages: parse, handle, write.
#pragma once

#include <google/protobuf/message.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "protocol/grpc_listener/rpc.h"
#include "protocol/kserve/grpc/grpc_status.h"
#include "protocol/kserve/grpc/message_bytes.h"

namespace inflight::kserve_grpc {

using grpc_listener::Rpc;

// What a client gets that ends a call before it has sent a message.
inline Status NoMessage() { return ToGrpcStatus(ParseFailure::kNoMessage, 0); }

// Waits for the one message of a call, and ends a call that is over before it has come.
class UnaryReactor : public grpc_listener::RpcReactor {
 public:
  explicit UnaryReactor(std::shared_ptr<Rpc> rpc) : rpc_(std::move(rpc)) {}

  void OnMessage(grpc_listener::RpcMessage message) final {
    if (!has_message_.exchange(true)) Handle(std::move(message));
  }
  void OnHalfClose() final { rpc_->Finish(NoMessage()); }
  void OnCancel() override {
    if (!has_message_.exchange(true)) rpc_->Finish(Cancelled("the client is gone"));
  }

 protected:
  // Sees to it that the call is finished.
  virtual void Handle(grpc_listener::RpcMessage message) = 0;

  const std::shared_ptr<Rpc> rpc_;

 private:
  std::atomic<bool> has_message_{false};  // or none is awaited any more
};

// Parses the request. False: the call has ended with what its client is told.
bool Parse(Rpc& rpc, const grpc_listener::RpcMessage& message, int64_t max_message_bytes,
           google::protobuf::Message& request);

// Ends the call with `response` where `status` is OK.
void Finish(Rpc& rpc, const Status& status, const google::protobuf::Message& response);

// Answers at once: `handle` fills the response and returns the status.
template <typename Request, typename Response, typename Handle>
void Answer(Rpc& rpc, const grpc_listener::RpcMessage& message, int64_t max_message_bytes,
            Handle handle) {
  const auto request = MakeOnArena<Request>();
  if (!Parse(rpc, message, max_message_bytes, *request)) return;
  const auto response = MakeOnArena<Response>();
  const Status status = handle(*request, *response);
  Finish(rpc, status, *response);
}

}  // namespace inflight::kserve_grpc

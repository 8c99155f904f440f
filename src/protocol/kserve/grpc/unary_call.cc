// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/unary_call.h"

namespace inflight::kserve_grpc {

bool Parse(Rpc& rpc, const grpc_listener::RpcMessage& message, int64_t max_message_bytes,
           google::protobuf::Message& request) {
  MemoryCharge charge(rpc.share());
  const ParseFailure failure = ParseMessage(message, max_message_bytes, charge, request);
  if (failure != ParseFailure::kNone) rpc.Finish(ToGrpcStatus(failure, max_message_bytes));
  return failure == ParseFailure::kNone;
}

void Finish(Rpc& rpc, const Status& status, const google::protobuf::Message& response) {
  if (!status.ok()) return rpc.Finish(ToGrpcStatus(status));
  std::string bytes;
  Status written = WriteMessage(response, Coding::kIdentity, bytes);
  if (!written.ok()) bytes = {};
  rpc.Finish(std::move(written), std::move(bytes));
}

}  // namespace inflight::kserve_grpc

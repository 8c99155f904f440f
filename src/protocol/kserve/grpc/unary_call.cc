// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/unary_call.h"

namespace inflight::kserve_grpc {

::grpc::ByteBuffer UnaryCall::TakeRequest() const {
  ::grpc::ByteBuffer taken;
  const_cast<::grpc::ByteBuffer*>(request)->Swap(&taken);  // gRPC's own object is not constant
  return taken;
}

::grpc::ServerUnaryReactor* UnaryCall::Finish(const ::grpc::Status& status) const {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

::grpc::ServerUnaryReactor* Parse(const UnaryCall& call, int64_t max_message_bytes,
                                  google::protobuf::Message& request) {
  ::grpc::ByteBuffer bytes = call.TakeRequest();
  MemoryCharge charge(call.share);
  const ParseFailure failure = ParseMessage(bytes, max_message_bytes, charge, request);
  if (failure == ParseFailure::kNone) return nullptr;
  return call.Finish(ToGrpcStatus(failure, max_message_bytes));
}

}  // namespace inflight::kserve_grpc

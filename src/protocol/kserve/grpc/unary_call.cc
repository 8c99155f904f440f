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

UnaryCalls::Reactor* UnaryCalls::Refuse(const UnaryCall& call, kserve::Api api) const {
  const Status status = CheckAccess(access_, api, *call.context);
  return status.ok() ? nullptr : call.Finish(ToGrpcStatus(status));
}

UnaryCalls::Reactor* UnaryCalls::Open(const UnaryCall& call, kserve::Api api,
                                      google::protobuf::MessageLite& request) const {
  if (Reactor* refused = Refuse(call, api)) return refused;
  ::grpc::ByteBuffer bytes = call.TakeRequest();
  const ParseFailure failure = ParseMessage(bytes, max_message_bytes_, request);
  if (failure == ParseFailure::kNone) return nullptr;
  return call.Finish(ToGrpcStatus(failure, max_message_bytes_));
}

}  // namespace inflight::kserve_grpc

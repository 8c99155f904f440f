// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/grpc_status.h"

namespace inflight::kserve_grpc {
namespace {

// Codes outside the eight error classes of the protocol become the class that tells the client
// the same: what to do now.
RpcCode ToGrpcCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return RpcCode::kOk;
    case StatusCode::kCancelled:
      return RpcCode::kCancelled;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      return RpcCode::kInvalidArgument;
    case StatusCode::kNotFound:
      return RpcCode::kNotFound;
    case StatusCode::kAlreadyExists:
      return RpcCode::kAlreadyExists;
    case StatusCode::kUnimplemented:
      return RpcCode::kUnimplemented;
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:  // queue full: try again later
    case StatusCode::kDeadlineExceeded:   // waited too long in a queue
    case StatusCode::kFailedPrecondition:
    case StatusCode::kAborted:
      return RpcCode::kUnavailable;
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      return RpcCode::kInternal;
    case StatusCode::kUnknown:
      return RpcCode::kUnknown;
    case StatusCode::kPermissionDenied:
      return RpcCode::kPermissionDenied;
    case StatusCode::kUnauthenticated:
      return RpcCode::kUnauthenticated;
  }
  return RpcCode::kUnknown;
}

}  // namespace

RpcStatus ToGrpcStatus(const Status& status) {
  const bool is_over_limit = status.reason() == Reason::kOverLimit;
  return {is_over_limit ? RpcCode::kResourceExhausted : ToGrpcCode(status.code()),
          status.message()};
}

Status Stopping() {
  return Unavailable("GRPC server is shutting down and has stopped accepting new requests.");
}

RpcStatus ShuttingDown() { return ToGrpcStatus(Stopping()); }

}  // namespace inflight::kserve_grpc

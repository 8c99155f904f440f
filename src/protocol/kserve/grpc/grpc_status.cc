// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/grpc_status.h"

namespace inflight::kserve_grpc {
namespace {

// Codes outside the eight error classes of the protocol become the class that tells the client
// the same: what to do now.
::grpc::StatusCode ToGrpcCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return ::grpc::StatusCode::OK;
    case StatusCode::kCancelled:
      return ::grpc::StatusCode::CANCELLED;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      return ::grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::kNotFound:
      return ::grpc::StatusCode::NOT_FOUND;
    case StatusCode::kAlreadyExists:
      return ::grpc::StatusCode::ALREADY_EXISTS;
    case StatusCode::kUnimplemented:
      return ::grpc::StatusCode::UNIMPLEMENTED;
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:  // queue full: try again later
    case StatusCode::kDeadlineExceeded:   // waited too long in a queue
    case StatusCode::kFailedPrecondition:
    case StatusCode::kAborted:
      return ::grpc::StatusCode::UNAVAILABLE;
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      return ::grpc::StatusCode::INTERNAL;
    case StatusCode::kUnknown:
      return ::grpc::StatusCode::UNKNOWN;
    case StatusCode::kPermissionDenied:
      return ::grpc::StatusCode::PERMISSION_DENIED;
    case StatusCode::kUnauthenticated:
      return ::grpc::StatusCode::UNAUTHENTICATED;
  }
  return ::grpc::StatusCode::UNKNOWN;
}

}  // namespace

::grpc::Status ToGrpcStatus(const Status& status) {
  const bool is_over_limit = status.reason() == Reason::kOverLimit;
  return {is_over_limit ? ::grpc::StatusCode::RESOURCE_EXHAUSTED : ToGrpcCode(status.code()),
          status.message()};
}

Status Stopping() {
  return Unavailable("GRPC server is shutting down and has stopped accepting new requests.");
}

::grpc::Status ShuttingDown() { return ToGrpcStatus(Stopping()); }

}  // namespace inflight::kserve_grpc

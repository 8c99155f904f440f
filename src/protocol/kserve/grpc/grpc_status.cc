// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/grpc_status.h"

namespace inflight::kserve_grpc {
namespace {

// Codes outside the eight error classes of the protocol become the class that tells the client
// the same: what to do now.
StatusCode ToGrpcCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOutOfRange:
      return StatusCode::kInvalidArgument;
    case StatusCode::kResourceExhausted:  // queue full: try again later
    case StatusCode::kDeadlineExceeded:   // waited too long in a queue
    case StatusCode::kFailedPrecondition:
    case StatusCode::kAborted:
      return StatusCode::kUnavailable;
    case StatusCode::kDataLoss:
      return StatusCode::kInternal;
    default:
      return code;
  }
}

}  // namespace

Status ToGrpcStatus(const Status& status) {
  const bool is_over_limit = status.reason() == Reason::kOverLimit;
  return {is_over_limit ? StatusCode::kResourceExhausted : ToGrpcCode(status.code()),
          status.message()};
}

Status Stopping() {
  return Unavailable("GRPC server is shutting down and has stopped accepting new requests.");
}

}  // namespace inflight::kserve_grpc

// SPDX-License-Identifier: Apache-2.0
#include "protocol/triton_backend/errors.h"

#include <string>

#include "base/log.h"
#include "tensor/cuda_runtime_calls.h"

namespace inflight::triton_backend {
namespace {

TRITONSERVER_Error_Code CodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied:
      return TRITONSERVER_ERROR_INVALID_ARG;
    case StatusCode::kNotFound:
      return TRITONSERVER_ERROR_NOT_FOUND;
    case StatusCode::kAlreadyExists:
      return TRITONSERVER_ERROR_ALREADY_EXISTS;
    case StatusCode::kUnimplemented:
      return TRITONSERVER_ERROR_UNSUPPORTED;
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:
    case StatusCode::kDeadlineExceeded:
      return TRITONSERVER_ERROR_UNAVAILABLE;
    case StatusCode::kCancelled:
      return TRITONSERVER_ERROR_CANCELLED;
    default:
      return TRITONSERVER_ERROR_INTERNAL;
  }
}

}  // namespace

TRITONSERVER_Error* ToTriton(const Status& status) {
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(CodeOf(status.code()), status.message().c_str());
}

Status FromTriton(TRITONSERVER_Error* error, const char* what) {
  if (error == nullptr) return Status::Ok();
  const std::string message = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  return Internal(std::string(what) + ": " + message);
}

Status CheckGpuMemory() {
  if (cuda::HasRuntime()) return Status::Ok();
  return Unimplemented(
      "the server passes memory of a GPU, which this build of the backend cannot reach; build it "
      "with CUDA (-DINFLIGHT_CUDA=ON)");
}

void LogFailure(TRITONSERVER_Error* error, const char* what) {
  const Status status = FromTriton(error, what);
  if (!status.ok()) logging::Error(status.message());
}

}  // namespace inflight::triton_backend

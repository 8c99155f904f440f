// SPDX-License-Identifier: Apache-2.0
// Errors of Triton's interface and ours: the codes are those with which our own server answers over
// gRPC and HTTP, so that a client sees the same from both.
#pragma once

#include "inflight/status.h"
#include "protocol/triton_backend/triton_api.h"

namespace inflight::triton_backend {

// Null for OK; else a new error, which the caller owns. `prefix` stands before the message.
TRITONSERVER_Error* ToTriton(const Status& status);

// Takes `error`, null included; `what` is the call that failed.
Status FromTriton(TRITONSERVER_Error* error, const char* what);

// kUnimplemented in builds without CUDA, which cannot reach it.
Status CheckGpuMemory();

// Of calls whose failure nobody can be told of: a line in the log.
void LogFailure(TRITONSERVER_Error* error, const char* what);

}  // namespace inflight::triton_backend

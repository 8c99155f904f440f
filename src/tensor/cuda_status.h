// SPDX-License-Identifier: Apache-2.0
// Errors of the CUDA runtime as Status. Only files built with CUDA include this.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "inflight/status.h"

namespace inflight::cuda {

// OK, or "`what`: the runtime's words (its name)"; kResourceExhausted when memory ran out,
// kInternal else.
Status ToStatus(cudaError_t error, std::string_view what);

// Of the kernel launched last on this thread.
inline Status LaunchStatus(std::string_view kernel) { return ToStatus(cudaGetLastError(), kernel); }

}  // namespace inflight::cuda

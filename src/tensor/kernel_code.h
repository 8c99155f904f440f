// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inflight::cuda {

// Whether this program holds kernels that run on the calling thread's GPU: machine code of its
// architecture, or PTX of an earlier one (CMAKE_CUDA_ARCHITECTURES).
bool HasKernelCode();

}  // namespace inflight::cuda

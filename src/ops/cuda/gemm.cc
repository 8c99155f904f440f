// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status Gemm(const GemmParams&, KernelSet, CudaStream&) { return Unimplemented("gemm"); }

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

bool SkinnyMmaCanRun(const GemmParams&) { return false; }
Status SkinnyMma(const GemmParams&, CudaStream&) { return Unimplemented("skinny"); }

}  // namespace inflight::ops::cuda

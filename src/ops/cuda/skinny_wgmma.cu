// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

bool SkinnyWgmmaCanRun(const GemmParams&, const CudaStream&) { return false; }
Status SkinnyWgmma(const GemmParams&, CudaStream&) { return Unimplemented("skinny"); }

}  // namespace inflight::ops::cuda

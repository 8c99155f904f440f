// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status GatherRows(const void*, const int32_t*, int64_t, int64_t, void*, CudaStream&) { return Unimplemented("gather"); }

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status DequantizeInt8(const Weight&, DType, void*, CudaStream&) { return Unimplemented("dequantize"); }

}  // namespace inflight::ops::cuda

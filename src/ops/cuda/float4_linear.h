// SPDX-License-Identifier: Apache-2.0
// The linear whose weights are float4 with an exponent for each group (MXFP4): the product of
// packed experts (expert_packed.cuh), of one expert that has all tokens. An output adds up over k
// in one order whatever the number of tokens.
#pragma once

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

// Whether it can run this product: float16 or bfloat16, y of that dtype or float32, aligned x, a
// weight in the order of tensor cores (ops/tensor_core_order.h).
bool Float4LinearCanRun(const GemmParams& params, const Weight& weight);
// Whether operators take it rather than widen the weight to the activations' dtype in the workspace
// (Dequantize): where it can, of up to 256 tokens, and on streams of OpChoice::kFixed of any
// number.
bool PreferFloat4Linear(const GemmParams& params, const Weight& weight, const CudaStream& stream);

Status Float4Linear(const GemmParams& params, const Weight& weight, CudaStream& stream);

}  // namespace inflight::ops::cuda

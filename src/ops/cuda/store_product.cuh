// SPDX-License-Identifier: Apache-2.0
// What our own products make of a finished sum.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/activate.cuh"
#include "ops/cuda/product_output.h"

namespace inflight::ops::cuda {

// Not inlined: it is seldom needed.
__device__ __noinline__ inline float Activated(ActivationKind kind, float x) {
  return Activate(kind, x);
}

__device__ inline void StoreProduct(const ProductOutput& out, int token, int row, float sum) {
  sum *= out.scale;
  if (out.bias != nullptr) sum += out.bias[row];
  if (out.activation != ActivationKind::kNone) sum = Activated(out.activation, sum);
  const int64_t at = token * out.stride + row;
  if (out.y_dtype == DType::kF32) {
    static_cast<float*>(out.y)[at] = sum;
  } else if (out.y_dtype == DType::kBF16) {
    static_cast<__nv_bfloat16*>(out.y)[at] = __float2bfloat16_rn(sum);
  } else {
    static_cast<__half*>(out.y)[at] = __float2half_rn(sum);
  }
}

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
// Where our own products put their sums, and what they make of them.
#pragma once

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

// y[token, row] = act(sum * scale + bias[row])
struct ProductOutput {
  void* y;            // [m, n] y_dtype, rows `stride` elements apart
  const float* bias;  // [n] or null
  int n;
  int64_t stride;
  float scale;
  DType y_dtype;
  ActivationKind activation;
};

inline ProductOutput OutputOf(const GemmParams& p) {
  return {.y = p.y,
          .bias = p.bias,
          .n = static_cast<int>(p.n),
          .stride = p.y_stride == 0 ? p.n : p.y_stride,
          .scale = p.scale,
          .y_dtype = p.y_dtype,
          .activation = p.activation};
}

}  // namespace inflight::ops::cuda

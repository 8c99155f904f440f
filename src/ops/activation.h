// SPDX-License-Identifier: Apache-2.0
// What travels between operators: values, their scales if quantised, and a norm that
// the consumer still has to apply while it loads them. A backend that fuses the norm into the
// consuming linear passes `pending_norm`; others never set it.
#pragma once

#include "tensor/tensor_view.h"

namespace inflight::ops {

enum class NormKind : uint8_t { kRmsNorm, kLayerNorm, kNone };

// The norms of a row x over its last dimension:
//
//   RMSNorm    y = x * weight / sqrt(mean(x^2) + eps)                    arXiv:1910.07467
//   LayerNorm  y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias    arXiv:1607.06450
//   none       y = x, without weights
//
// eps stands inside the root of RMSNorm, as in Llama. The variance is that of the population.
struct Norm {
  NormKind kind = NormKind::kRmsNorm;
  TensorView weight;  // [hidden_size] float32
  TensorView bias;    // [hidden_size] float32; empty for RMSNorm
  float eps = 1e-5F;
};

struct Activation {
  TensorView values;                   // [num_tokens, width] f32 | f16 | bf16 | i8 | f8e4m3
  TensorView scales;                   // [num_tokens] float32; empty unless values are i8 or f8e4m3
  const Norm* pending_norm = nullptr;  // applied by the consumer; null = already applied
};

// Factors that a linear of quantised operands leaves to whoever reads its output, which is cheaper
// than applying them inside the product (docs/reference/kernels.md):
//   value[t, n] = raw[t, n] * (token[t] * factor) * feature[n]
struct PendingScales {
  TensorView token;                // [num_tokens] float32; empty = nothing is pending
  const float* feature = nullptr;  // [width]
  float factor = 1;                // 1 / Fp8ProductScale
};

// FP8 rounding of activations, a scale per token (e4m3 of arXiv:2209.05433):
//   scales[t] = max(max_k |x[t, k]|, 1/512) / 448;  y[t, k] = e4m3(x[t, k] / scales[t])
struct QuantizeParams {
  TensorView x;       // [num_tokens, width] f16 | bf16
  TensorView y;       // [num_tokens, width] f8e4m3
  TensorView scales;  // [num_tokens] float32
};

}  // namespace inflight::ops

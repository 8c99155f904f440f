// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/activation.h"
#include "tensor/stream.h"

namespace inflight::ops {

namespace cuda {
struct Peers;
}

// Residual addition, then norm (formulas: activation.h).
//   residual[t] += delta_factor * delta[t];  y[t] = norm(residual[t])
// On CUDA residual and delta are of the model's dtype; the sum is rounded to it once, and the norm
// is of the rounded sum, in float32.
struct AddNormParams {
  TensorView residual;  // [num_tokens, hidden_size] float32, updated in place
  TensorView delta;     // [num_tokens, hidden_size] float32; empty = nothing to add
  float delta_factor = 1;
  PendingScales delta_scales;  // CUDA only: of a delta whose linear deferred them
  // CUDA only: the ranks whose deltas are added up here, after their scales (cuda/peers.h); null:
  // `delta` is whole.
  const cuda::Peers* peers = nullptr;
  Norm norm;
  TensorView y;  // [num_tokens, hidden_size] f32 | bf16 | f16, the dtype that the next linear
                 // reads; on CUDA also f8e4m3, as of QuantizeParams applied to the norm in float32.
                 // It may be `residual` itself
  TensorView y_scales;  // [num_tokens] float32; of y in f8e4m3
};

}  // namespace inflight::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/activation.h"
#include "tensor/stream.h"

namespace inflight::ops {

// Residual addition, then norm (formulas: activation.h). With tensor-parallel ranks the all-reduce
// of `delta` happens here.
//   residual[t] += delta[t];  y[t] = norm(residual[t])
struct AddNormParams {
  TensorView residual;  // [num_tokens, hidden_size] float32, updated in place
  TensorView delta;     // [num_tokens, hidden_size] float32; empty = nothing to add
  Norm norm;
  TensorView y;  // [num_tokens, hidden_size] f32 | bf16 | f16, the dtype that the next linear reads
};

}  // namespace inflight::ops

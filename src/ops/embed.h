// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/weight.h"
#include "tensor/stream.h"

namespace inflight::ops {

// Token (and learned position) embedding:  y[t] = table[ids[t]] + position_table[positions[t]]
struct EmbedParams {
  TensorView ids;        // [num_tokens] int32, each in [0, vocab_size)
  TensorView positions;  // [num_tokens] int32; read only with a position table
  // [vocab_size, hidden_size] any layout: a tied table is the lm_head's packed weight
  Weight table;
  TensorView position_table;  // [max_positions, hidden_size] same dtype as table, row-major; empty
                              // unless learned_absolute
  TensorView y;               // [num_tokens, hidden_size] float32: the residual stream
};

}  // namespace inflight::ops

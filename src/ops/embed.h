// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/weight.h"
#include "tensor/stream.h"

namespace inflight::ops {

// Token (and learned position) embedding:
//   y[t] = scale * table[ids[t]] + position_table[positions[t]]
//
// A token that names a row of its request's own table (inflight/prompt_table.h) has that row, as it
// is, in place of scale * table[ids[t]].
struct EmbedParams {
  // [num_tokens] int32, each in [0, vocab_size) but for those that have a row in prompt_rows
  TensorView ids;
  TensorView positions;  // [num_tokens] int32; read only with a position table
  // [vocab_size, hidden_size] any layout: a tied table is the lm_head's packed weight. On the CPU
  // of integers, too, each row then with its scales.
  Weight table;
  TensorView position_table;  // [max_positions, hidden_size] same dtype as table, beside integers
                              // any float, row-major; empty unless learned_absolute
  // [num_tokens] where the tensors are, null where no token has any: token t's own row,
  // [hidden_size] prompt_dtype at a multiple of 16 bytes, or null. On CUDA the dtype is that of the
  // table, and the row may lie in pinned host memory, which is read once.
  const void* const* prompt_rows = nullptr;
  DType prompt_dtype = DType::kF32;
  // Of a table that is split over ranks: its rows are those of ids from first_id on, and ids of
  // other ranks give zeros in place of a row, so that the ranks' results add up to the whole.
  bool is_part = false;
  int64_t first_id = 0;
  float scale = 1;
  TensorView y;  // [num_tokens, hidden_size] float32: the residual stream; on CUDA of the table's
                 // dtype, rounded once
};

}  // namespace inflight::ops

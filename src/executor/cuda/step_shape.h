// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inflight::executor::cuda {

// A step of prefill rows has one more than the batch, which fills it up to a graph's tokens.
inline constexpr int kFillRows = 1;

// What the host knows of a step before it is computed; of a graph, what it was captured for.
struct StepShape {
  int num_rows = 0;         // decode rows first; of graphs with those that fill it up
  int num_decode_rows = 0;  // one token each
  int num_tokens = 0;
  int num_logits = 0;
  bool has_adapters = false;  // (LoRA) of any row

  static StepShape Decode(int num_rows) { return {num_rows, num_rows, num_rows, num_rows}; }
  // At most `num_rows` prompts or chunks, filled up to `num_tokens` by a row more.
  static StepShape Prefill(int num_rows, int num_tokens) {
    return {num_rows + kFillRows, 0, num_tokens, num_rows};
  }
  bool has_prefill() const { return num_decode_rows < num_rows; }
  // Whether a step of `shape` can be filled up to this one.
  bool Holds(const StepShape& shape) const {
    if (shape.has_adapters != has_adapters) return false;
    return has_prefill() ? shape.num_decode_rows == 0 && shape.num_rows <= num_rows - kFillRows &&
                               shape.num_tokens <= num_tokens && shape.num_logits <= num_logits
                         : !shape.has_prefill() && shape.num_rows <= num_rows;
  }
};

}  // namespace inflight::executor::cuda

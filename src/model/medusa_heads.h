// SPDX-License-Identifier: Apache-2.0
// Medusa's heads (arXiv:2401.10774): from the state that a decoder's lm_head reads at a token, head
// h says which token comes h + 2 places behind it, where lm_head says the next one:
//
//   x_0 = state     x_{l+1} = x_l + SiLU(W_l x_l + b_l)     logits = lm_head_h x_n      n blocks
//
// which is FasterDecoding/Medusa/medusa/model/medusa_model.py. In the model's dtype, sums in
// float32; x is kept in float32 between the blocks.
//
// Threads: one call at a time.
#pragma once

#include <memory>

#include "model/engine.h"
#include "ops/backend.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace inflight::model {

class MedusaHeads {
 public:
  // For at most `max_rows` states at once. On the CPU.
  static Result<std::unique_ptr<MedusaHeads>> Create(std::shared_ptr<const Engine> engine,
                                                     ops::OpTable ops, Device& device,
                                                     int max_rows);

  // What Create takes.
  static uint64_t Bytes(const ModelConfig& config, int max_rows);

  // Logits [num_rows, vocab_size] float32 of head `head` (from 0), valid until the next call, of
  // rows `rows` [num_rows] int32 of `states`, which are Decoder::States.
  Result<TensorView> Logits(int head, const TensorView& states, const TensorView& rows,
                            Stream& stream);

 private:
  MedusaHeads() = default;

  std::shared_ptr<const Engine> engine_;
  ops::OpTable ops_;
  Buffer buffer_;
  TensorView x_;        // [max_rows, hidden_size] float32
  TensorView operand_;  // [max_rows, hidden_size] of the dtype that linears read
  TensorView delta_;    // [max_rows, hidden_size] float32
  TensorView all_;      // [max_rows] int32: 0, 1, ...
  TensorView logits_;   // [max_rows, vocab_size] float32
};

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// Adapters in a linear of the CPU: shrink once before its panels, expand into each panel's sums.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/lora.h"
#include "ops/weight.h"

namespace inflight::ops::cpu {

// What adapters add to one weight of a linear. `index` tells the two weights of a gated linear
// apart.
class LoraSums {
 public:
  LoraSums(const KernelSet& kernels, const LoraTerm& term, LoraSite site, size_t index);

  // Nothing is added to any token.
  bool empty() const { return is_empty_; }

  // Of all tokens with an adapter; x is [num_tokens, in_features].
  void Shrink(const TensorView& x, CpuPool& pool) const;

  // To the sums of features [column, column + num_columns) of a token.
  void Add(int64_t token, int64_t column, int num_columns, float* sums) const;

 private:
  void ShrinkPart(const TensorView& x, const LoraBatch::Run& run, const LoraPart& part,
                  int first_sum, int first_row, int num_rows) const;

  const KernelSet& kernels_;
  const LoraTerm& term_;
  const LoraSite site_;
  bool is_empty_ = true;
  int64_t stride_ = 0;  // the most ranks that an adapter has here
  float* sums_ = nullptr;
};

}  // namespace inflight::ops::cpu

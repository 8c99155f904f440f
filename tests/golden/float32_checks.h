// SPDX-License-Identifier: Apache-2.0
// How a model in float32 is held to what transformers says, on the CPU and on a GPU.
#pragma once

#include <string>
#include <vector>

#include "golden_reference.h"
#include "paged_model.h"

namespace inflight::golden {

// The logit that is the furthest from transformers'.
struct Difference {
  float worst = 0;
  int64_t position = 0;
  size_t token = 0;
  float found = 0;
  float expected = 0;
};

// Over the positions that are kept; `logits` are those of all positions.
Difference Compare(const Expected& expected, const std::vector<std::vector<float>>& logits);
std::string Describe(const Difference& d);

// Greedy continuations of all prompts, decoded in one batch after prefills of different lengths:
// `num_steps` tokens of each.
std::vector<std::vector<TokenId>> Greedy(const std::shared_ptr<const model::Engine>& engine,
                                         const ops::OpTable& table, Device& device,
                                         std::span<const Expected> prompts, size_t num_steps = 256);

}  // namespace inflight::golden

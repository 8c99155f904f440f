// SPDX-License-Identifier: Apache-2.0
// SamplingRule in the form the kernels read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "decoding/sampler.h"
#include "decoding/weights.h"

namespace inflight::decoding {

enum class DrawKind : int32_t { kGreedy, kTopK, kTopP };

struct SlotRule {
  DrawKind kind = DrawKind::kGreedy;
  float scale = 1.0F;  // of the logits, for temperature
  int32_t top_k = 0;   // [1, kMaxTopK] for kTopK
  float top_p = 1.0F;
  int32_t min_weight = 1;  // tokens that weigh less are dropped
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  int32_t has_penalties = 0;
  int32_t wants_log_probs = 0;
  int32_t normalize_log_probs = 1;
  uint64_t seed = 0;
};

inline SlotRule MakeSlotRule(const SamplingRule& rule) {
  return {.kind = rule.greedy      ? DrawKind::kGreedy
                  : rule.top_k > 0 ? DrawKind::kTopK
                                   : DrawKind::kTopP,
          .scale = TemperatureScale(rule.temperature),
          .top_k = rule.top_k,
          .top_p = rule.top_p,
          .min_weight = std::max(1, InUnits(rule.min_p)),
          .repetition_penalty = rule.repetition_penalty,
          .presence_penalty = rule.presence_penalty,
          .frequency_penalty = rule.frequency_penalty,
          .has_penalties = rule.has_penalties() ? 1 : 0,
          .wants_log_probs = rule.wants_log_probs ? 1 : 0,
          .normalize_log_probs = rule.normalize_log_probs ? 1 : 0,
          .seed = rule.seed};
}

}  // namespace inflight::decoding

// SPDX-License-Identifier: Apache-2.0
// SamplingRule in the form the kernels read: what is of one size in SlotRule, end ids and bad words
// in a list of the slot, the bias in a row of the slot, bad texts in tables (bad_text_tables.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "decoding/sampler.h"
#include "decoding/weights.h"

namespace inflight::decoding {

struct DeviceBadTexts;

enum class DrawKind : int32_t { kGreedy, kTopK, kTopP };

struct SlotRule {
  DrawKind kind = DrawKind::kGreedy;
  float scale = 1.0F;  // of the logits, for temperature
  int32_t top_k = 0;   // [1, kMaxTopK] for kTopK
  // Of the draw that follows `top_p_position` tokens. Where it decays kernels write both at once,
  // so that whoever reads them meanwhile has one that goes with the other.
  alignas(8) float top_p = 1.0F;
  int32_t top_p_position = 0;
  float first_top_p = 1.0F;
  float top_p_decay = 1.0F;
  float top_p_min = 0.0F;
  int32_t top_p_reset_id = -1;
  int32_t has_top_p_decay = 0;
  int32_t min_weight = 1;  // tokens that weigh less are dropped
  float typical_p = 1.0F;  // 1 = off
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  int32_t has_penalties = 0;
  int32_t num_uncounted_tokens = 0;
  int32_t has_bias = 0;
  int32_t has_bans = 0;
  int32_t no_repeat_ngram_size = 0;
  int32_t first_end_position = 0;
  int32_t num_end_ids = 0;  // of the slot's list
  int32_t num_words = 0;    // of the slot's list
  int32_t wants_log_probs = 0;
  int32_t normalize_log_probs = 1;
  uint64_t seed = 0;
  const DeviceBadTexts* bad_texts = nullptr;  // the device's; null = none

  // Whether logits change by more than a factor.
  constexpr bool has_edits() const { return has_penalties != 0 || has_bans != 0 || has_bias != 0; }
};

// [num_end_ids] end ids, [num_words] where words end among the ids, the ids of all words.
constexpr size_t kMaxListSize = kMaxEndIds + kMaxWords + kMaxWordTokens;

// Returns how many values `list`, of kMaxListSize, then has.
inline size_t WriteList(const SamplingRule& rule, std::span<int32_t> list) {
  auto at = std::ranges::copy(rule.end_ids, list.begin()).out;
  int32_t end = 0;
  for (const std::vector<TokenId>& word : rule.bad_words)
    *at++ = end += static_cast<int32_t>(word.size());
  for (const std::vector<TokenId>& word : rule.bad_words) at = std::ranges::copy(word, at).out;
  return static_cast<size_t>(at - list.begin());
}

// `tokens` are the sequence so far, prompt and output.
inline SlotRule MakeSlotRule(const SamplingRule& rule, std::span<const TokenId> tokens,
                             const DeviceBadTexts* bad_texts) {
  return {.kind = rule.greedy      ? DrawKind::kGreedy
                  : rule.top_k > 0 ? DrawKind::kTopK
                                   : DrawKind::kTopP,
          .scale = TemperatureScale(rule.temperature),
          .top_k = rule.top_k,
          .top_p = TopPAfter(rule, tokens),
          .top_p_position = static_cast<int32_t>(tokens.size()),
          .first_top_p = rule.top_p,
          .top_p_decay = rule.top_p_decay,
          .top_p_min = rule.top_p_min,
          .top_p_reset_id = rule.top_p_reset_id,
          .has_top_p_decay = rule.has_top_p_decay() ? 1 : 0,
          .min_weight = std::max(1, InUnits(rule.min_p)),
          .typical_p = rule.typical_p,
          .repetition_penalty = rule.repetition_penalty,
          .presence_penalty = rule.presence_penalty,
          .frequency_penalty = rule.frequency_penalty,
          .has_penalties = rule.has_penalties() ? 1 : 0,
          .num_uncounted_tokens = rule.num_uncounted_tokens,
          .has_bias = rule.bias != nullptr ? 1 : 0,
          .has_bans = rule.has_bans() ? 1 : 0,
          .no_repeat_ngram_size = rule.no_repeat_ngram_size,
          .first_end_position = rule.first_end_position,
          .num_end_ids = static_cast<int32_t>(rule.end_ids.size()),
          .num_words = static_cast<int32_t>(rule.bad_words.size()),
          .wants_log_probs = rule.wants_log_probs ? 1 : 0,
          .normalize_log_probs = rule.normalize_log_probs ? 1 : 0,
          .seed = rule.seed,
          .bad_texts = bad_texts};
}

}  // namespace inflight::decoding

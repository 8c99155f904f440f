// SPDX-License-Identifier: Apache-2.0
// What a request asks of the rows of logits that its tokens are drawn from, normalised.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "inflight/guide.h"
#include "inflight/request.h"

namespace inflight::decoding {

// Of a request's end ids and of each of its lists of words: what a slot has room for.
constexpr size_t kMaxEndIds = 1024;
constexpr size_t kMaxWords = 1024;
constexpr size_t kMaxWordTokens = 16384;

// Temperature 0 is greedy; top-k 0 and top-p 0 are greedy; top-k alone keeps all of its mass (top-p
// 1); min-p alone samples from the whole distribution (top-p 1).
struct SamplingRule {
  bool greedy = true;
  float temperature = 1.0F;
  int top_k = 0;       // 0 = the top-p path
  float top_p = 1.0F;  // the first; where it decays each slot has its own
  float top_p_decay = 1.0F;
  float top_p_min = 0.0F;
  TokenId top_p_reset_id = -1;
  float min_p = 0.0F;
  float typical_p = 1.0F;  // 1 = off
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  int num_uncounted_tokens = 0;  // first ones of the sequence, which the penalties do not count
  std::shared_ptr<const std::vector<float>> bias;  // [vocab_size]; null = none
  int num_prompt_tokens = 0;
  int first_end_position = 0;  // no end id is drawn before it
  // Empty where first_end_position forbids nothing, and there is no guide.
  std::vector<TokenId> end_ids;
  int no_repeat_ngram_size = 0;  // 0 = off
  std::vector<std::vector<TokenId>> bad_words;
  std::shared_ptr<const BadTexts> bad_texts;  // null = none
  std::shared_ptr<const Guide> guide;         // null = none
  bool wants_log_probs = false;
  bool normalize_log_probs = true;
  uint64_t seed = 0;

  bool has_penalties() const {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
  bool has_bans() const {
    return !end_ids.empty() || no_repeat_ngram_size > 0 || !bad_words.empty() ||
           bad_texts != nullptr;
  }
  bool has_top_p_decay() const {
    return !greedy && top_k == 0 && (top_p_decay != 1.0F || top_p_min > top_p);
  }
};

// Top-p of the draw that follows one of `token` by `top_p`, and of that which follows `tokens`
// (prompt and output).
float TopPAfter(const SamplingRule& rule, float top_p, TokenId token);
float TopPAfter(const SamplingRule& rule, std::span<const TokenId> tokens);

SamplingRule MakeSamplingRule(const Request& request, uint64_t seed, int num_prompt_tokens);

}  // namespace inflight::decoding

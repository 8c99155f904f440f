// SPDX-License-Identifier: Apache-2.0
#include "decoding/sampling_rule.h"

#include <algorithm>
#include <limits>

#include "decoding/weights.h"
#include "parameters/parameters.h"

namespace inflight::decoding {
namespace {

void SetDraw(const SamplingParams& params, SamplingRule* rule) {
  rule->temperature = params.temperature.value_or(1.0F);
  rule->top_k = std::min(params.top_k.value_or(0), kMaxTopK);
  rule->top_p = params.top_p.value_or(0.0F);
  rule->min_p = params.min_p.value_or(0.0F);
  rule->typical_p = params.typical_p.value_or(1.0F);
  rule->greedy = !parameters::IsDrawn(params);
  if (rule->temperature == 0.0F) rule->temperature = 1.0F;
  if (rule->top_p <= 0.0F) rule->top_p = 1.0F;
  rule->top_p_decay = params.top_p_decay.value_or(1.0F);
  rule->top_p_min = params.top_p_min.value_or(kDefaultTopPMin);
  rule->top_p_reset_id = params.top_p_reset_id.value_or(-1);
}

void SetPenalties(const SamplingParams& params, SamplingRule* rule) {
  rule->repetition_penalty = params.repetition_penalty.value_or(1.0F);
  rule->presence_penalty = params.presence_penalty.value_or(0.0F);
  rule->frequency_penalty = params.frequency_penalty.value_or(0.0F);
  rule->num_uncounted_tokens = std::min(params.prompt_ignore_length, rule->num_prompt_tokens);
}

void SetBans(const Request& request, SamplingRule* rule) {
  const SamplingParams& params = request.sampling;
  rule->no_repeat_ngram_size = params.no_repeat_ngram_size;
  rule->bad_words = request.bad_words;
  rule->bad_texts = request.bad_texts;
  rule->guide = request.guide;
  if (params.min_tokens == 0 && rule->guide == nullptr) return;
  rule->end_ids = request.end_ids;
  const int most = std::numeric_limits<int>::max() - rule->num_prompt_tokens;
  rule->first_end_position = rule->num_prompt_tokens + std::min(params.min_tokens, most);
}

}  // namespace

float TopPAfter(const SamplingRule& rule, float top_p, TokenId token) {
  return NextTopP(top_p, rule.top_p, rule.top_p_decay, rule.top_p_min,
                  token == rule.top_p_reset_id);
}

float TopPAfter(const SamplingRule& rule, std::span<const TokenId> tokens) {
  float top_p = rule.top_p;
  if (!rule.has_top_p_decay()) return top_p;
  for (auto i = static_cast<size_t>(rule.num_prompt_tokens); i < tokens.size(); ++i)
    top_p = TopPAfter(rule, top_p, tokens[i]);
  return top_p;
}

SamplingRule MakeSamplingRule(const Request& request, uint64_t seed, int num_prompt_tokens) {
  SamplingRule rule;
  rule.num_prompt_tokens = num_prompt_tokens;
  rule.seed = seed;
  SetDraw(request.sampling, &rule);
  SetPenalties(request.sampling, &rule);
  rule.bias = request.embedding_bias;
  SetBans(request, &rule);
  rule.wants_log_probs = request.output.return_log_probs;
  rule.normalize_log_probs = request.output.normalize_log_probs;
  return rule;
}

}  // namespace inflight::decoding

// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/generation_request.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "parameters/model_defaults.h"
#include "parameters/parameters.h"

namespace inflight::openai {
namespace {

// Tokens of the answer alone count for what OpenAI calls penalties; a repetition_penalty is of all.
void SetPenalties(const Asked& asked, const parameters::ModelDefaults& model,
                  serving::Generation& generation) {
  SamplingParams& sampling = generation.llm.sampling;
  const auto repetition =
      asked.repetition_penalty ? asked.repetition_penalty : model.repetition_penalty;
  if (repetition && *repetition != 1) sampling.repetition_penalty = repetition;
  if (asked.presence_penalty.value_or(0) != 0) sampling.presence_penalty = asked.presence_penalty;
  if (asked.frequency_penalty.value_or(0) != 0)
    sampling.frequency_penalty = asked.frequency_penalty;
  generation.penalizes_prompt = sampling.repetition_penalty.has_value();
}

Status CheckId(std::string_view field, TokenId id, int vocab_size) {
  if (id < vocab_size) return Status::Ok();
  return InvalidArgument(field, "got token id " + std::to_string(id) + ", must be in [0, " +
                                    std::to_string(vocab_size) + ")");
}

Status SetBias(const Asked& asked, int vocab_size, inflight::Request& request) {
  if (asked.logit_bias.empty()) return Status::Ok();
  auto bias = std::make_shared<std::vector<float>>(static_cast<size_t>(vocab_size));
  for (const auto& [id, value] : asked.logit_bias) {
    RETURN_IF_ERROR(CheckId("logit_bias", id, vocab_size));
    (*bias)[static_cast<size_t>(id)] = value;
  }
  request.embedding_bias = std::move(bias);
  return Status::Ok();
}

void SetLogProbs(const Asked& asked, const serving::TextModel& model, OutputOptions& output) {
  // The best of several answers is the one of the largest log-probability a token.
  output.return_log_probs = asked.logprobs || asked.best_of.value_or(asked.n) > asked.n;
  output.normalize_log_probs = false;
  output.num_top_log_probs = std::min(asked.top_logprobs, model.limits.vocab_size);
}

}  // namespace

Result<serving::Generation> MakeGeneration(const Asked& asked, const serving::TextModel& model,
                                           int default_max_tokens, uint64_t seed) {
  serving::Generation generation;
  inflight::Request& request = generation.llm;
  request.streaming = asked.stream;
  const int unsaid_tokens =
      default_max_tokens > 0 ? default_max_tokens : model.defaults.max_new_tokens.value_or(0);
  request.max_tokens =
      asked.max_completion_tokens.value_or(asked.max_tokens.value_or(unsaid_tokens));
  request.sampling.num_return_sequences = asked.best_of.value_or(asked.n);
  request.sampling.min_tokens = asked.min_tokens;
  const parameters::Drawing drawing = {.temperature = asked.temperature,
                                       .top_p = asked.top_p,
                                       .top_k = asked.top_k,
                                       .min_p = asked.min_p};
  parameters::SetDrawing(drawing, model.defaults, parameters::Unsaid::kDraw, request.sampling);
  if (parameters::IsDrawn(request.sampling)) request.sampling.seed = seed;
  SetPenalties(asked, model.defaults, generation);
  RETURN_IF_ERROR(SetBias(asked, model.limits.vocab_size, request));
  for (const TokenId id : asked.stop_token_ids)
    RETURN_IF_ERROR(CheckId("stop_token_ids", id, model.limits.vocab_size));
  request.end_ids = asked.stop_token_ids;
  SetLogProbs(asked, model, request.output);
  constexpr float kMiddle = 0.5F;
  constexpr float kSteps = 2000.0F;  // smaller numbers go first
  request.priority = kMiddle - static_cast<float>(asked.priority) / kSteps;
  generation.ignores_model_ends = asked.ignore_eos;
  generation.stop_texts = asked.stop;
  generation.max_reasoning_tokens = asked.thinking_budget;
  return generation;
}

}  // namespace inflight::openai

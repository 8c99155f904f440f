// SPDX-License-Identifier: Apache-2.0
#include "contract/llm_api.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace inflight::contract {
namespace {

using enum DataType;
using Role = InputRole;

constexpr auto kLlmApiInputs = std::to_array<LlmApiInput>({
    {"text_input", Role::kQuery},
    {"streaming", Role::kLlm, "streaming"},
    {"stop", Role::kLlm, "stop"},
    {"sampling_param_beam_width", Role::kLlm, "beam_width"},
    {"sampling_param_best_of", Role::kOnlyOne},
    {"sampling_param_temperature", Role::kLlm, "temperature"},
    {"sampling_param_top_k", Role::kLlm, "runtime_top_k"},
    {"sampling_param_top_p", Role::kLlm, "runtime_top_p"},
    {"sampling_param_frequency_penalty", Role::kLlm, "frequency_penalty"},
    {"sampling_param_presence_penalty", Role::kLlm, "presence_penalty"},
    {"sampling_param_max_tokens", Role::kLlm, "request_output_len"},
    {"sampling_param_stop", Role::kStopWords},
    {"sampling_param_seed", Role::kLlm, "random_seed"},
    {"sampling_param_exclude_input_from_output", Role::kLlm, "exclude_input_in_output"},
    {"sampling_param_return_perf_metrics", Role::kLlm, "return_perf_metrics"},
    {"return_finish_reason", Role::kLlm, "return_finish_reason"},
    {"return_cumulative_logprob", Role::kLlm, "return_log_probs"},
});

// --- outputs that have other names or values than those of the ensemble ---

bool AsksForReason(const Output&, const OutputSource& source) {
  return source.options.facts.asked.finish_reason;
}
bool AsksForLogProbs(const Output&, const OutputSource& source) {
  return source.options.return_log_probs;
}

// As its CompletionOutput says it, in the words of Python.
std::string ReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndId:
    case FinishReason::kStopWords:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kTimedOut:
      return "timeout";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kNotFinished:
      break;
  }
  return "None";
}

Tensor MakeReasons(const Output&, std::string_view name, DataType, const OutputSource& source) {
  std::vector<std::string> names;
  for (const FinishReason reason : source.options.facts.finish_reasons)
    names.push_back(ReasonName(reason));
  if (names.empty()) names.push_back(ReasonName(source.response.finish_reason));
  return Tensor::FromStrings(std::string(name), {std::ssize(names)}, names);
}

Tensor MakeSum(const Output&, std::string_view name, DataType, const OutputSource& source) {
  return CumLogProbs(std::string(name), source.response);
}

bool AsksForMetrics(const Output&, const OutputSource& source) {
  return source.options.facts.asked.kv_cache_reuse_stats;
}

int Reused(const OutputSource& source) {
  return source.response.num_cached_tokens / source.options.facts.block_size;
}

// Full blocks of the prompt that were not in the cache.
int Missed(const OutputSource& source) {
  const RequestFacts& facts = source.options.facts;
  return std::max(0, facts.num_input_tokens / facts.block_size - Reused(source));
}

Tensor MakeMissed(const Output&, std::string_view name, DataType, const OutputSource& source) {
  const int32_t missed = Missed(source);
  return Tensor::FromValues<int32_t>(std::string(name), kInt32, {1}, std::span(&missed, 1));
}

Tensor MakeHitRate(const Output&, std::string_view name, DataType, const OutputSource& source) {
  const int blocks = Reused(source) + Missed(source);
  const float rate =
      blocks == 0 ? 0.0F : static_cast<float>(Reused(source)) / static_cast<float>(blocks);
  return Tensor::FromValues<float>(std::string(name), kFp32, {1}, std::span(&rate, 1));
}

const std::vector<Output>& OwnOutputs() {
  static const std::vector<Output> outputs = {
      {.name = "finish_reason",
       .type = kBytes,
       .dims = {-1},
       .is_in = AsksForReason,
       .make = MakeReasons},
      {.name = "cumulative_logprob",
       .type = kFp32,
       .dims = {-1},
       .is_in = AsksForLogProbs,
       .make = MakeSum},
      {.name = "kv_cache_missed_block",
       .type = kInt32,
       .dims = {-1},
       .is_in = AsksForMetrics,
       .make = MakeMissed},
      {.name = "kv_cache_hit_rate",
       .type = kFp32,
       .dims = {-1},
       .is_in = AsksForMetrics,
       .make = MakeHitRate},
  };
  return outputs;
}

// Of those that are the ensemble's, under its names.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"kv_cache_reused_block", "kv_cache_reused_blocks"}};

}  // namespace

LlmApiInput LlmApiInputOf(std::string_view name) {
  const auto found = std::ranges::find(kLlmApiInputs, name, &LlmApiInput::name);
  return found == kLlmApiInputs.end() ? LlmApiInput{.name = name} : *found;
}

const Output* FindLlmApiOutput(std::string_view name) {
  for (const Output& output : OwnOutputs()) {
    if (output.name == name) return &output;
  }
  for (const auto& [here, there] : kOtherNames) {
    if (here == name) return FindTextOutput(there);
  }
  return FindTextOutput(name);
}

}  // namespace inflight::contract

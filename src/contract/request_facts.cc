// SPDX-License-Identifier: Apache-2.0
#include "contract/request_facts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace inflight::contract {
namespace {

template <typename T>
Tensor One(std::string name, DataType type, T value) {
  return Tensor::FromValues<T>(std::move(name), type, {1, 1}, std::span<const T>(&value, 1));
}

int Blocks(int num_tokens, int block_size) { return (num_tokens + block_size - 1) / block_size; }

// --- what each output says ---

using Source = const RequestFacts&;

int32_t NumInputTokens(Source facts, const Response&) { return facts.num_input_tokens; }
int32_t NumOutputTokens(Source, const Response& response) {
  size_t num_tokens = response.output_ids.size();
  for (const Beam& beam : response.beams) num_tokens += beam.output_ids.size();
  return static_cast<int32_t>(num_tokens);
}

int32_t NumCachedTokens(Source, const Response& response) { return response.num_cached_tokens; }

int32_t ReusedBlocks(Source facts, const Response& response) {
  return Blocks(response.num_cached_tokens, facts.block_size);
}
// Of the prompt, as upstream counts: what was allocated when it was admitted.
int32_t NewBlocks(Source facts, const Response& response) {
  return Blocks(facts.num_input_tokens, facts.block_size) - ReusedBlocks(facts, response);
}

int32_t NumDrafts(Source, const Response& response) { return response.num_draft_tokens; }
int32_t NumAcceptedDrafts(Source, const Response& response) {
  return response.num_accepted_draft_tokens;
}

// --- how it is written ---

template <int32_t (*kCount)(Source, const Response&)>
Tensor Count(std::string name, Source facts, const Response& response) {
  return One<int32_t>(std::move(name), DataType::kInt32, kCount(facts, response));
}

template <int64_t RequestTimes::*kTime>
Tensor Time(std::string name, Source, const Response& response) {
  return One<int64_t>(std::move(name), DataType::kInt64, response.times.*kTime);
}

// 0 where there were no drafts.
Tensor AcceptanceRate(std::string name, Source, const Response& response) {
  const auto num_drafts = static_cast<float>(std::max(1, response.num_draft_tokens));
  return One<float>(std::move(name), DataType::kFp32,
                    static_cast<float>(response.num_accepted_draft_tokens) / num_drafts);
}

Tensor FinishReasons(std::string name, Source facts, const Response& response) {
  std::vector<std::string> names;
  const auto add = [&](FinishReason reason) { names.emplace_back(FinishReasonName(reason)); };
  for (const FinishReason reason : facts.finish_reasons) add(reason);
  if (names.empty()) {
    for (const Beam& beam : response.beams) add(beam.finish_reason);
  }
  if (names.empty()) add(response.finish_reason);
  return Tensor::FromStrings(std::move(name), {1, std::ssize(names)}, names);
}

bool IsDue(Due due, const Response& response) {
  switch (due) {
    case Due::kAlways:
      return true;
    case Due::kAtSequenceEnd:
      return response.is_sequence_final;
  }
  return false;
}

using Asked = FactsAsked;
using Times = RequestTimes;
using enum Due;
using enum DataType;

constexpr bool kGenerated = true;

constexpr auto kFacts = std::to_array<FactOutput>({
    {"num_input_tokens", kInt32, kGenerated, &Asked::num_input_tokens, kAlways,
     Count<NumInputTokens>},
    {"num_output_tokens", kInt32, kGenerated, &Asked::num_output_tokens, kAlways,
     Count<NumOutputTokens>},
    {"num_cached_tokens", kInt32, kGenerated, &Asked::num_cached_tokens, kAlways,
     Count<NumCachedTokens>},
    {"finish_reason", kBytes, kGenerated, &Asked::finish_reason, kAtSequenceEnd, FinishReasons},
    {"kv_cache_alloc_new_blocks", kInt32, !kGenerated, &Asked::kv_cache_reuse_stats, kAlways,
     Count<NewBlocks>},
    {"kv_cache_reused_blocks", kInt32, !kGenerated, &Asked::kv_cache_reuse_stats, kAlways,
     Count<ReusedBlocks>},
    {"kv_cache_alloc_total_blocks", kInt32, !kGenerated, &Asked::kv_cache_reuse_stats, kAlways,
     Count<NewBlocks>},
    {"arrival_time_ns", kInt64, !kGenerated, &Asked::perf_metrics, kAlways,
     Time<&Times::enqueued_ns>},
    {"first_scheduled_time_ns", kInt64, !kGenerated, &Asked::perf_metrics, kAlways,
     Time<&Times::first_scheduled_ns>},
    {"first_token_time_ns", kInt64, !kGenerated, &Asked::perf_metrics, kAlways,
     Time<&Times::first_token_ns>},
    {"last_token_time_ns", kInt64, !kGenerated, &Asked::perf_metrics, kAlways,
     Time<&Times::last_token_ns>},
    {"acceptance_rate", kFp32, !kGenerated, &Asked::perf_metrics, kAlways, AcceptanceRate},
    {"total_accepted_draft_tokens", kInt32, !kGenerated, &Asked::perf_metrics, kAlways,
     Count<NumAcceptedDrafts>},
    {"total_draft_tokens", kInt32, !kGenerated, &Asked::perf_metrics, kAlways, Count<NumDrafts>},
});

const FactOutput* Find(std::string_view name) {
  for (const FactOutput& fact : kFacts) {
    if (fact.name == name) return &fact;
  }
  return nullptr;
}

}  // namespace

std::span<const FactOutput> FactOutputs() { return kFacts; }

bool IsFact(std::string_view output) { return Find(output) != nullptr; }

bool IsIn(const FactOutput& fact, const RequestFacts& facts, const Response& response) {
  return facts.asked.*fact.asked && IsDue(fact.due, response);
}

std::optional<Tensor> Fact(std::string_view fact, std::string name, const RequestFacts& facts,
                           const Response& response) {
  const FactOutput* found = Find(fact);
  if (found == nullptr || !IsIn(*found, facts, response)) return std::nullopt;
  return found->write(std::move(name), facts, response);
}

}  // namespace inflight::contract

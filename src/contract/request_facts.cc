// SPDX-License-Identifier: Apache-2.0
#include "contract/request_facts.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace inflight::contract {
namespace {

template <typename T>
Tensor One(std::string name, DataType type, T value) {
  return Tensor::FromValues<T>(std::move(name), type, {1, 1}, std::span<const T>(&value, 1));
}

int Blocks(int num_tokens, int block_size) { return (num_tokens + block_size - 1) / block_size; }

// --- one function for each output ---

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
int32_t AllBlocks(Source facts, const Response&) {
  return Blocks(facts.num_input_tokens + facts.num_output_tokens, facts.block_size);
}
int32_t NewBlocks(Source facts, const Response& response) {
  return AllBlocks(facts, response) - ReusedBlocks(facts, response);
}

int64_t Arrival(Source, const Response& r) { return r.times.enqueued_ns; }
int64_t FirstScheduled(Source, const Response& r) { return r.times.first_scheduled_ns; }
int64_t FirstToken(Source, const Response& r) { return r.times.first_token_ns; }
int64_t LastToken(Source, const Response& r) { return r.times.last_token_ns; }

// Without draft tokens none is accepted.
int32_t NoDrafts(Source, const Response&) { return 0; }

Tensor FinishReasons(std::string name, Source facts) {
  std::vector<std::string> names;
  for (const FinishReason reason : facts.finish_reasons)
    names.emplace_back(FinishReasonName(reason));
  return Tensor::FromStrings(std::move(name), {1, std::ssize(names)}, names);
}

// Which responses have it.
enum class Due : uint8_t { kAlways, kAtSequenceEnd, kAtEnd };

bool IsDue(Due due, const Response& response) {
  switch (due) {
    case Due::kAlways:
      return true;
    case Due::kAtSequenceEnd:
      return response.is_sequence_final;
    case Due::kAtEnd:
      return response.is_final;
  }
  return false;
}

struct Entry {
  std::string_view name;
  bool FactsAsked::*asked;
  Due due;
  int32_t (*count)(Source, const Response&);
  int64_t (*time_ns)(Source, const Response&) = nullptr;
};

constexpr auto kEntries = std::to_array<Entry>({
    {"num_input_tokens", &FactsAsked::num_input_tokens, Due::kAlways, NumInputTokens},
    {"num_output_tokens", &FactsAsked::num_output_tokens, Due::kAlways, NumOutputTokens},
    {"num_cached_tokens", &FactsAsked::num_cached_tokens, Due::kAlways, NumCachedTokens},
    {"finish_reason", &FactsAsked::finish_reason, Due::kAtSequenceEnd, nullptr},
    {"kv_cache_alloc_new_blocks", &FactsAsked::kv_cache_reuse_stats, Due::kAtEnd, NewBlocks},
    {"kv_cache_reused_blocks", &FactsAsked::kv_cache_reuse_stats, Due::kAtEnd, ReusedBlocks},
    {"kv_cache_alloc_total_blocks", &FactsAsked::kv_cache_reuse_stats, Due::kAtEnd, AllBlocks},
    {"arrival_time_ns", &FactsAsked::perf_metrics, Due::kAtEnd, nullptr, Arrival},
    {"first_scheduled_time_ns", &FactsAsked::perf_metrics, Due::kAtEnd, nullptr, FirstScheduled},
    {"first_token_time_ns", &FactsAsked::perf_metrics, Due::kAtEnd, nullptr, FirstToken},
    {"last_token_time_ns", &FactsAsked::perf_metrics, Due::kAtEnd, nullptr, LastToken},
    {"acceptance_rate", &FactsAsked::perf_metrics, Due::kAtEnd, nullptr, nullptr},
    {"total_accepted_draft_tokens", &FactsAsked::perf_metrics, Due::kAtEnd, NoDrafts},
    {"total_draft_tokens", &FactsAsked::perf_metrics, Due::kAtEnd, NoDrafts},
});

const Entry* Find(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace

bool IsFact(std::string_view output) { return Find(output) != nullptr; }

std::optional<Tensor> Fact(std::string_view fact, std::string name, const RequestFacts& facts,
                           const Response& response) {
  const Entry* entry = Find(fact);
  if (entry == nullptr || !(facts.asked.*entry->asked)) return std::nullopt;
  if (!IsDue(entry->due, response)) return std::nullopt;
  if (entry->asked == &FactsAsked::finish_reason) return FinishReasons(std::move(name), facts);
  if (entry->count != nullptr) {
    return One<int32_t>(std::move(name), DataType::kInt32, entry->count(facts, response));
  }
  if (entry->time_ns != nullptr) {
    return One<int64_t>(std::move(name), DataType::kInt64, entry->time_ns(facts, response));
  }
  return One<float>(std::move(name), DataType::kFp32, 0.0F);  // acceptance_rate
}

}  // namespace inflight::contract

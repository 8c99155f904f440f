// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/iteration_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "json/json_writer.h"
#include "serving/configuration/model_config.h"

namespace inflight::serving {
namespace {

constexpr int64_t kUsPerSecond = 1'000'000;
constexpr int kMicrosecondRelease = 12;  // before, the gauge and the line had whole seconds

using It = const Iteration&;
using Profile = const IterationProfile&;
using enum GaugeFamily;

double Fraction(It it, Profile) {
  return it.stats.kv_blocks_max == 0 ? 0.0
                                     : static_cast<double>(it.stats.kv_blocks_used) /
                                           static_cast<double>(it.stats.kv_blocks_max);
}

double Timestamp(It it, Profile profile) {
  return static_cast<double>(
      profile.release >= kMicrosecondRelease ? it.timestamp_us : it.timestamp_us / kUsPerSecond);
}

double FreeRows(It it, Profile) {
  return std::max(0, it.stats.max_active_requests - it.stats.num_scheduled_requests);
}

template <auto kMember>
double Stat(It it, Profile) {
  return static_cast<double>(it.stats.*kMember);
}

using S = ExecutorStats;

// In the order of the JSON line.
constexpr auto kFields = std::to_array<IterationField>({
    {kRequest, "active", "Active Request Count", Stat<&S::num_active_requests>},
    {kGeneral, "iteration_counter", "Iteration Counter", Stat<&S::num_steps>},
    {kRequest, "max", "Max Request Count", Stat<&S::max_active_requests>},
    {kRuntimeMemory, "cpu", "Runtime CPU Memory Usage", Stat<&S::cpu_memory_bytes>},
    {kRuntimeMemory, "gpu", "Runtime GPU Memory Usage", Stat<&S::gpu_memory_bytes>},
    {kRuntimeMemory, "pinned", "Runtime Pinned Memory Usage", Stat<&S::pinned_memory_bytes>},
    {kGeneral, "timestamp", "Timestamp", Timestamp},
    // In upstream since 0.19; routers ask every release for it, as for `fraction` below.
    {kRequest, "waiting", "Waiting Requests", Stat<&S::num_queued_requests>},
    {kRequest, "context", "Context Requests", Stat<&S::num_context_requests>},
    {.family = kInflightBatcher,
     .label_value = "generation_requests",
     .json_key = "Generation Requests",
     .value = Stat<&S::num_generation_requests>,
     .static_batch = false},
    {.family = kInflightBatcher,
     .label_value = "micro_batch_id",
     .json_key = "MicroBatch ID",
     .value = Stat<&S::micro_batch_id>,
     .static_batch = false},
    {.family = kInflightBatcher,
     .label_value = "terminated_requests",
     .json_key = "Terminated Requests",
     .value = [](It it, Profile) { return static_cast<double>(it.num_terminated); },
     .since = 8,
     .until = 8,
     .static_batch = false},
    {.family = kInflightBatcher,
     .label_value = "paused_requests",
     .json_key = "Paused Requests",
     .value = Stat<&S::num_paused_requests>,
     .since = 9,
     .static_batch = false},
    {kRequest, "scheduled", "Scheduled Requests", Stat<&S::num_scheduled_requests>},
    {.family = kInflightBatcher,
     .label_value = "total_context_tokens",
     .json_key = "Total Context Tokens",
     .value = Stat<&S::num_context_tokens>,
     .static_batch = false},
    {.family = kV1,
     .label_value = "total_context_tokens",
     .json_key = "Total Context Tokens",
     .value = Stat<&S::num_context_tokens>,
     .in_flight = false},
    {.family = kV1,
     .label_value = "total_generation_tokens",  // one a row
     .json_key = "Total Generation Tokens",
     .value = Stat<&S::num_generation_requests>,
     .in_flight = false},
    {.family = kV1,
     .label_value = "empty_generation_slots",
     .json_key = "Empty Generation Slots",
     .value = FreeRows,
     .in_flight = false},
    {kKvCacheBlock, "free", "Free KV cache blocks", Stat<&S::kv_blocks_free>},
    {kKvCacheBlock, "max", "Max KV cache blocks", Stat<&S::kv_blocks_max>},
    {kKvCacheBlock, "tokens_per", "Tokens per KV cache block",
     [](It it, Profile) { return static_cast<double>(it.block_size); }},
    {kKvCacheBlock, "used", "Used KV cache blocks", Stat<&S::kv_blocks_used>},
    {.family = kKvCacheBlock,
     .label_value = "reused",
     .json_key = "Reused KV cache blocks",
     .value = Stat<&S::kv_blocks_reused>,
     .since = 16,
     .tells_reuse = true},
    {.family = kKvCacheBlock,
     .label_value = "fraction",
     .json_key = "Fraction used KV cache blocks",
     .value = Fraction,
     .is_fraction = true},
});

bool StopIsScalar(const ::inference::ModelConfig& config) {
  return std::any_of(config.input().begin(), config.input().end(), [](const auto& input) {
    return input.name() == "stop" && input.has_reshape();
  });
}

}  // namespace

IterationProfile ProfileOf(const ::inference::ModelConfig& config) {
  struct Mark {
    int release;
    std::string_view input;
  };
  static constexpr Mark kMarks[] = {
      {19, "return_perf_metrics"},
      {17, "retention_token_range_starts"},
      {16, "return_kv_cache_reuse_stats"},
      {16, "skip_cross_attn_blocks"},
      {15, "encoder_input_features"},
      {14, "num_return_sequences"},
      {13, "prompt_table_extra_ids"},
      {11, "decoder_input_ids"},
      {10, "draft_acceptance_threshold"},
      {9, "lora_task_id"},
      {8, "frequency_penalty"},
  };
  constexpr int kBeforeMarks = 7;
  IterationProfile profile{.release = kBeforeMarks};
  for (const Mark& mark : kMarks) {
    if (HasInput(config, mark.input)) profile.release = std::max(profile.release, mark.release);
  }
  if (StopIsScalar(config)) profile.release = std::max(profile.release, 12);
  const auto type = FindParameter(config, "gpt_model_type");
  profile.is_static_batch = type == "V1" || type == "v1";
  return profile;
}

const GaugeFamilyInfo& InfoOf(GaugeFamily family) {
  static constexpr GaugeFamilyInfo kInfos[] = {
      {"nv_trt_llm_request_metrics", "TRT LLM request metrics", "request_type"},
      {"nv_trt_llm_runtime_memory_metrics", "TRT LLM runtime memory metrics", "memory_type"},
      {"nv_trt_llm_kv_cache_block_metrics", "TRT LLM KV cache block metrics",
       "kv_cache_block_type"},
      {"nv_trt_llm_inflight_batcher_metrics", "TRT LLM inflight_batcher-specific metrics",
       "inflight_batcher_specific_metric"},
      {"nv_trt_llm_v1_metrics", "TRT LLM v1-specific metrics", "v1_specific_metric"},
      {"nv_trt_llm_general_metrics", "General TRT LLM metrics", "general_type"},
  };
  return kInfos[static_cast<size_t>(family)];
}

std::vector<const IterationField*> FieldsOf(const IterationProfile& profile) {
  std::vector<const IterationField*> fields;
  for (const IterationField& field : kFields) {
    const bool is_of_type = profile.is_static_batch ? field.static_batch : field.in_flight;
    if (is_of_type && field.since <= profile.release && profile.release <= field.until) {
      fields.push_back(&field);
    }
  }
  return fields;
}

std::string FieldText(const IterationField& field, const Iteration& iteration,
                      const IterationProfile& profile) {
  const double value = field.value(iteration, profile);
  return field.is_fraction ? fmt::format("{:.6g}", value)
                           : std::to_string(static_cast<int64_t>(value));
}

std::string TimestampText(int64_t epoch_us, bool with_microseconds) {
  const auto seconds = static_cast<std::time_t>(epoch_us / kUsPerSecond);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::string text = fmt::format("{:02}-{:02}-{:04} {:02}:{:02}:{:02}", utc.tm_mon + 1, utc.tm_mday,
                                 utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  if (with_microseconds) text += fmt::format(".{:06}", epoch_us % kUsPerSecond);
  return text;
}

std::string IterationJson(const Iteration& iteration, const IterationProfile& profile) {
  std::string line;
  json::Writer writer(line);
  writer.BeginObject();
  for (const IterationField* field : FieldsOf(profile)) {
    writer.Key(field->json_key);
    if (field->value == Timestamp) {
      const bool with_microseconds = profile.release >= kMicrosecondRelease;
      writer.String(TimestampText(iteration.timestamp_us, with_microseconds));
    } else {
      writer.Raw(FieldText(*field, iteration, profile));
    }
  }
  writer.EndObject();
  return line;
}

}  // namespace inflight::serving

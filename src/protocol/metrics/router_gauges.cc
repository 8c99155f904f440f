// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/router_gauges.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inflight::metrics {
namespace {

using serving::ExecutorGauges;
using serving::Histogram;
using serving::Iteration;
using serving::StatisticsSnapshot;

struct RouterGauge {
  std::string_view name;
  std::string_view help;
  double (*value)(const Iteration&);
};

// A paused request has given its blocks back: it waits, as vLLM counts those that it preempts.
constexpr RouterGauge kRouterGauges[] = {
    {"vllm:num_requests_running", "Requests that run",
     [](const Iteration& it) {
       return static_cast<double>(it.stats.num_active_requests - it.stats.num_paused_requests);
     }},
    {"vllm:num_requests_waiting", "Requests that wait, paused ones included",
     [](const Iteration& it) {
       return static_cast<double>(it.stats.num_queued_requests + it.stats.num_paused_requests);
     }},
    {"vllm:kv_cache_usage_perc", "Share of the KV blocks that requests hold; 1 is all",
     [](const Iteration& it) {
       const auto max = static_cast<double>(it.stats.kv_blocks_max);
       return max > 0 ? static_cast<double>(it.stats.kv_blocks_used) / max : 0;
     }},
};

// Two versions of a model have the same name: `engine` tells executors apart, as they stand.
std::vector<Label> RouterLabels(const ExecutorGauges& executor, std::string_view engine,
                                std::vector<Label> more = {}) {
  more.push_back({"engine", engine});
  more.push_back({"model_name", executor.model});
  std::sort(more.begin(), more.end());
  return more;
}

void WriteCacheInfo(const std::vector<RouterModel>& models, TextWriter& out) {
  out.Family("vllm:cache_config_info", "Tokens of a KV block, and how many blocks there are",
             "gauge");
  for (size_t i = 0; i < models.size(); ++i) {
    const Iteration& it = models[i].executor->iteration;
    const std::string engine = std::to_string(i);
    const std::string block_size = std::to_string(it.block_size);
    const std::string num_blocks = std::to_string(it.stats.kv_blocks_max);
    out.Sample(RouterLabels(*models[i].executor, engine,
                            {{"block_size", block_size}, {"num_gpu_blocks", num_blocks}}),
               uint64_t{1});
  }
}

// Names divided by commas; one that has a comma would be read as two, and is left out.
std::string List(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (name.find(',') != std::string::npos) continue;
    if (!list.empty()) list += ',';
    list += name;
  }
  return list;
}

// An adapter is loaded before its first request is queued: none waits to be.
void WriteAdapters(const std::vector<RouterModel>& models, TextWriter& out) {
  const auto has_names = [](const RouterModel& m) { return m.executor->adapters.has_value(); };
  if (std::none_of(models.begin(), models.end(), has_names)) return;
  out.Family("vllm:lora_requests_info", "Adapters with names that are loaded; when that was so",
             "gauge");
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  for (size_t i = 0; i < models.size(); ++i) {
    const ExecutorGauges& executor = *models[i].executor;
    if (!executor.adapters) continue;
    const std::string engine = std::to_string(i);
    const std::string max = std::to_string(executor.adapters->max);
    const std::string running = List(executor.adapters->names);
    out.Sample(
        RouterLabels(
            executor, engine,
            {{"max_lora", max}, {"running_lora_adapters", running}, {"waiting_lora_adapters", ""}}),
        now.count());
  }
}

struct RouterCounter {
  std::string_view name;
  std::string_view help;
  int64_t ExecutorStats::*value;
  bool tells_reuse = false;
};

constexpr RouterCounter kRouterCounters[] = {
    {"vllm:prompt_tokens_total", "Prompt tokens of admitted requests",
     &ExecutorStats::prompt_tokens},
    {"vllm:generation_tokens_total", "Tokens generated", &ExecutorStats::tokens_generated},
    {"vllm:prefix_cache_queries_total", "Prompt tokens that were looked for in the KV cache",
     &ExecutorStats::prompt_tokens},
    {"vllm:prefix_cache_hits_total", "Prompt tokens that were found there",
     &ExecutorStats::prompt_tokens_cached, true},
    {"vllm:spec_decode_num_draft_tokens_total", "Draft tokens that were verified",
     &ExecutorStats::tokens_drafted},
    {"vllm:spec_decode_num_accepted_tokens_total", "Draft tokens that became output",
     &ExecutorStats::drafts_accepted},
};

struct RouterHistogram {
  std::string_view name;
  std::string_view help;
  Histogram StatisticsSnapshot::*histogram;
  double unit;  // of its bounds in ours: 1000 where ours are milliseconds
};

constexpr double kMsPerSecond = 1000;
// The time between tokens had another name before vLLM 0.11: dashboards have either.
constexpr RouterHistogram kRouterHistograms[] = {
    {"vllm:time_to_first_token_seconds", "From a request's arrival to its first token",
     &StatisticsSnapshot::ttft_ms, kMsPerSecond},
    {"vllm:inter_token_latency_seconds", "Between consecutive tokens of a request",
     &StatisticsSnapshot::itl_ms, kMsPerSecond},
    {"vllm:time_per_output_token_seconds", "The same, by its former name",
     &StatisticsSnapshot::itl_ms, kMsPerSecond},
    {"vllm:request_queue_time_seconds", "From a request's arrival to its first step",
     &StatisticsSnapshot::queue_ms, kMsPerSecond},
    {"vllm:e2e_request_latency_seconds", "From a successful request's arrival to its last token",
     &StatisticsSnapshot::request_ms, kMsPerSecond},
    {"vllm:request_prompt_tokens", "Prompt tokens of successful requests",
     &StatisticsSnapshot::prompt_tokens, 1},
    {"vllm:request_generation_tokens", "Generated tokens of successful requests",
     &StatisticsSnapshot::output_tokens, 1},
};

void WriteRouterHistograms(const std::vector<RouterModel>& models, TextWriter& out) {
  for (const RouterHistogram& family : kRouterHistograms) {
    bool is_announced = false;
    for (size_t i = 0; i < models.size(); ++i) {
      if (models[i].statistics == nullptr) continue;
      const Histogram& histogram = models[i].statistics->*family.histogram;
      if (histogram.counts.size() != histogram.upper_bounds.size() + 1) continue;  // not kept
      if (!std::exchange(is_announced, true)) out.Family(family.name, family.help, "histogram");
      std::vector<double> bounds = histogram.upper_bounds;
      for (double& bound : bounds) bound /= family.unit;
      const std::string engine = std::to_string(i);
      out.HistogramSamples(RouterLabels(*models[i].executor, engine), bounds, histogram.counts,
                           histogram.sum / family.unit);
    }
  }
}

// Why requests ended, in vLLM's words; several of ours may be one of its.
std::string_view RouterReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndId:
    case FinishReason::kStopWords:
      return "stop";
    case FinishReason::kLength:
      return "length";
    default:
      return "abort";
  }
}

void WriteRouterFinished(const std::vector<RouterModel>& models, TextWriter& out) {
  bool is_announced = false;
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].statistics == nullptr) continue;
    std::map<std::string_view, uint64_t> by_reason;
    for (const auto& [reason, count] : models[i].statistics->finished)
      by_reason[RouterReason(reason)] += count;
    const std::string engine = std::to_string(i);
    for (const auto& [reason, count] : by_reason) {
      if (!std::exchange(is_announced, true))
        out.Family("vllm:request_success_total", "Successful requests, by why they ended",
                   "counter");
      out.Sample(RouterLabels(*models[i].executor, engine, {{"finished_reason", reason}}), count);
    }
  }
}

}  // namespace

void WriteRouterGauges(const std::vector<RouterModel>& models, bool with_reuse, TextWriter& out) {
  if (models.empty()) return;
  for (const RouterGauge& gauge : kRouterGauges) {
    out.Family(gauge.name, gauge.help, "gauge");
    for (size_t i = 0; i < models.size(); ++i) {
      const ExecutorGauges& executor = *models[i].executor;
      const std::string engine = std::to_string(i);
      out.Sample(RouterLabels(executor, engine), gauge.value(executor.iteration));
    }
  }
  WriteCacheInfo(models, out);
  WriteAdapters(models, out);
  for (const RouterCounter& counter : kRouterCounters) {
    if (counter.tells_reuse && !with_reuse) continue;
    out.Family(counter.name, counter.help, "counter");
    for (size_t i = 0; i < models.size(); ++i) {
      const ExecutorGauges& executor = *models[i].executor;
      const std::string engine = std::to_string(i);
      out.Sample(RouterLabels(executor, engine),
                 static_cast<uint64_t>(executor.stats.*counter.value));
    }
  }
  WriteRouterFinished(models, out);
  WriteRouterHistograms(models, out);
}

}  // namespace inflight::metrics

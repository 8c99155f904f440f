// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/iteration_gauges.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "serving/statistics/iteration_stats_json.h"

namespace inflight::metrics {
namespace {

using serving::ExecutorGauges;
using serving::Iteration;

struct IterationGauge {
  std::string_view name;
  double (*value)(const Iteration&);
  bool tells_reuse = false;  // of all that is allocated, what is not new was reused
};

constexpr IterationGauge kIterationGauges[] = {
    {"latency_ms",
     [](const Iteration& it) { return static_cast<double>(it.stats.last_step_ns) / 1e6; }},
    {"queued_requests",
     [](const Iteration& it) { return static_cast<double>(it.stats.num_queued_requests); }},
    {"new_active_requests",
     [](const Iteration& it) { return static_cast<double>(it.num_new_active); }},
    {"new_active_requests_queue_latency_ms",
     [](const Iteration& it) { return static_cast<double>(it.new_active_queue_ns) / 1e6; }},
    {"completed_requests",
     [](const Iteration& it) { return static_cast<double>(it.num_terminated); }},
    {"alloc_total_blocks",
     [](const Iteration& it) { return static_cast<double>(it.stats.kv_blocks_alloc_total); }},
    {"alloc_new_blocks",
     [](const Iteration& it) { return static_cast<double>(it.stats.kv_blocks_alloc_new); }, true},
    {"missed_blocks",
     [](const Iteration& it) { return static_cast<double>(it.stats.kv_blocks_missed); }, true},
    {"cache_hit_rate",
     [](const Iteration& it) {
       return serving::CacheHitRate(it.stats.kv_blocks_reused, it.stats.kv_blocks_missed);
     },
     true},
    {"avg_decoded_tokens_per_iter", serving::TokensPerRow},
    {"max_batch_size", [](const Iteration& it) { return static_cast<double>(it.max_batch_size); }},
    {"max_num_tokens", [](const Iteration& it) { return static_cast<double>(it.max_num_tokens); }},
};

void WriteNewest(const std::vector<ExecutorGauges>& executors, bool with_reuse, TextWriter& out) {
  if (executors.empty()) return;
  out.Family("inflight_iteration", "Newest iteration of the executor", "gauge");
  for (const ExecutorGauges& executor : executors) {
    for (const IterationGauge& gauge : kIterationGauges) {
      if (gauge.tells_reuse && !with_reuse) continue;
      out.Sample(LabelsOf(executor, {{"statistic", gauge.name}}), gauge.value(executor.iteration));
    }
  }
}

// Sums of the newest record of request statistics, by stage.
void WriteStages(const std::vector<ExecutorGauges>& executors, bool with_reuse, TextWriter& out) {
  struct Family {
    std::string_view name;
    std::string_view help;
    int64_t (*value)(const RequestStats&);
    bool tells_reuse = false;
  };
  static constexpr Family kFamilies[] = {
      {"inflight_sequences_by_stage", "Sequences of requests in the newest iteration",
       [](const RequestStats&) -> int64_t { return 1; }},
      {"inflight_context_tokens_by_stage", "Tokens of their prompts that are computed or reused",
       [](const RequestStats& s) -> int64_t { return s.context_prefill_position; }, true},
      {"inflight_generated_tokens_by_stage", "Tokens that they have generated",
       [](const RequestStats& s) -> int64_t { return s.num_generated_tokens; }}};
  for (const Family& family : kFamilies) {
    if (family.tells_reuse && !with_reuse) continue;
    bool is_announced = false;
    for (const ExecutorGauges& executor : executors) {
      if (!executor.requests) continue;
      if (!std::exchange(is_announced, true)) out.Family(family.name, family.help, "gauge");
      for (const RequestStage stage :
           {RequestStage::kQueued, RequestStage::kContextInProgress,
            RequestStage::kGenerationInProgress, RequestStage::kGenerationComplete}) {
        int64_t sum = 0;
        for (const RequestStats& stats : executor.requests->requests) {
          if (stats.stage == stage) sum += family.value(stats);
        }
        out.Sample(LabelsOf(executor, {{"stage", RequestStageName(stage)}}),
                   static_cast<uint64_t>(sum));
      }
    }
  }
}

}  // namespace

std::vector<Label> LabelsOf(const ExecutorGauges& executor, std::vector<Label> more) {
  more.push_back({"model", executor.model});
  more.push_back({"version", executor.version});
  if (!executor.name_space.empty()) more.push_back({"namespace", executor.name_space});
  std::sort(more.begin(), more.end());
  return more;
}

void WriteIterationGauges(const std::vector<ExecutorGauges>& executors, bool with_reuse,
                          TextWriter& out) {
  WriteNewest(executors, with_reuse, out);
  WriteStages(executors, with_reuse, out);
}

}  // namespace inflight::metrics

// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/metrics_page.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "protocol/metrics/text_writer.h"
#include "serving/statistics.h"

namespace inflight::metrics {
namespace {

using serving::ExecutorGauges;
using serving::FailureReason;
using serving::StatisticsSnapshot;

struct ModelSample {
  std::string name;
  std::string version;
  StatisticsSnapshot statistics;
};

uint64_t Microseconds(const serving::DurationStat& stat) { return stat.ns / 1000; }

// ---- Per model, from its statistics ----

using Counter = uint64_t (*)(const StatisticsSnapshot&);

struct CounterFamily {
  std::string_view name;
  std::string_view help;
  std::string_view type;
  Counter value;
};

constexpr CounterFamily kRequestFamilies[] = {
    {"nv_inference_request_success", "Number of successful inference requests, all batch sizes",
     "counter", [](const StatisticsSnapshot& s) { return s.success.count; }},
    {"nv_inference_count", "Number of inferences performed (does not include cached requests)",
     "counter", [](const StatisticsSnapshot& s) { return s.inference_count; }},
    {"nv_inference_exec_count",
     "Number of model executions performed (does not include cached requests)", "counter",
     [](const StatisticsSnapshot& s) { return s.execution_count; }},
    {"nv_inference_request_duration_us",
     "Cumulative inference request duration in microseconds (includes cached requests)", "counter",
     [](const StatisticsSnapshot& s) { return Microseconds(s.success); }},
    {"nv_inference_queue_duration_us",
     "Cumulative inference queuing duration in microseconds (includes cached requests)", "counter",
     [](const StatisticsSnapshot& s) { return Microseconds(s.queue); }},
    {"nv_inference_compute_input_duration_us",
     "Cumulative compute input duration in microseconds (does not include cached requests)",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.compute_input); }},
    {"nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds (does not include cached requests)",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.compute_infer); }},
    {"nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds (does not include cached "
     "requests)",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.compute_output); }},
    {"nv_inference_pending_request_count",
     "Instantaneous number of pending requests awaiting execution per-model.", "gauge",
     [](const StatisticsSnapshot& s) { return s.pending_requests; }},
};

void WriteFailures(const std::vector<ModelSample>& models, TextWriter& out) {
  static constexpr std::pair<std::string_view, FailureReason> kReasons[] = {
      {"BACKEND", FailureReason::kBackend},
      {"CANCELED", FailureReason::kCanceled},
      {"OTHER", FailureReason::kOther},
      {"REJECTED", FailureReason::kRejected}};
  out.Family("nv_inference_request_failure", "Number of failed inference requests, all batch sizes",
             "counter");
  for (const ModelSample& model : models) {
    for (const auto& [reason_name, reason] : kReasons) {
      const Label labels[] = {
          {"model", model.name}, {"reason", reason_name}, {"version", model.version}};
      const auto found = model.statistics.failures.find(reason);
      out.Sample(labels, found == model.statistics.failures.end() ? uint64_t{0} : found->second);
    }
  }
}

struct HistogramFamily {
  std::string_view name;
  std::string_view help;
  serving::Histogram StatisticsSnapshot::*histogram;
};

constexpr HistogramFamily kHistogramFamilies[] = {
    {"inflight_time_to_first_token_ms", "Milliseconds from a request's arrival to its first token",
     &StatisticsSnapshot::ttft_ms},
    {"inflight_inter_token_ms", "Milliseconds between consecutive tokens of a request",
     &StatisticsSnapshot::itl_ms},
    {"inflight_queue_ms", "Milliseconds from a request's arrival to its first scheduling",
     &StatisticsSnapshot::queue_ms},
    {"inflight_step_ms", "Milliseconds of a step of the executor", &StatisticsSnapshot::step_ms},
};

// Models without token latencies (preprocessing, ensembles) have none of these series.
void WriteHistograms(const std::vector<ModelSample>& models, TextWriter& out) {
  for (const HistogramFamily& family : kHistogramFamilies) {
    bool is_announced = false;
    for (const ModelSample& model : models) {
      const serving::Histogram& histogram = model.statistics.*family.histogram;
      if (histogram.counts.size() != histogram.upper_bounds.size() + 1) continue;
      if (!std::exchange(is_announced, true)) out.Family(family.name, family.help, "histogram");
      const Label labels[] = {{"model", model.name}, {"version", model.version}};
      out.HistogramSamples(labels, histogram.upper_bounds, histogram.counts, histogram.sum);
    }
  }
}

// ---- Per executor ----

// When the step loop last turned, in microseconds of the epoch.
double HeartbeatMicroseconds(const ExecutorStats& stats) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t age_ns = Clock::System().NowNs() - stats.heartbeat_ns;
  return static_cast<double>(
      (std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - age_ns) / 1000);
}

struct Gauge {
  std::string_view value_name;  // of the discriminating label
  double (*value)(const ExecutorGauges&);
};

struct GaugeFamily {
  std::string_view name;
  std::string_view help;
  std::string_view label;
  std::vector<Gauge> gauges;
};

const std::vector<GaugeFamily>& GaugeFamilies() {
  static const std::vector<GaugeFamily> kFamilies = {
      {"nv_trt_llm_request_metrics",
       "TRT LLM request metrics",
       "request_type",
       {{"waiting", [](const ExecutorGauges& g) { return double(g.stats.num_queued_requests); }},
        {"context", [](const ExecutorGauges& g) { return double(g.stats.num_context_requests); }},
        {"scheduled",
         [](const ExecutorGauges& g) { return double(g.stats.num_scheduled_requests); }},
        {"max", [](const ExecutorGauges& g) { return double(g.stats.max_active_requests); }},
        {"active", [](const ExecutorGauges& g) { return double(g.stats.num_active_requests); }}}},
      {"nv_trt_llm_kv_cache_block_metrics",
       "TRT LLM KV cache block metrics",
       "kv_cache_block_type",
       {{"fraction",
         [](const ExecutorGauges& g) {
           return g.stats.kv_blocks_max == 0
                      ? 0.0
                      : double(g.stats.kv_blocks_used) / double(g.stats.kv_blocks_max);
         }},
        {"tokens_per", [](const ExecutorGauges& g) { return double(g.limits.block_size); }},
        {"reused", [](const ExecutorGauges& g) { return double(g.stats.kv_blocks_reused); }},
        {"used", [](const ExecutorGauges& g) { return double(g.stats.kv_blocks_used); }},
        {"free", [](const ExecutorGauges& g) { return double(g.stats.kv_blocks_free); }},
        {"max", [](const ExecutorGauges& g) { return double(g.stats.kv_blocks_max); }}}},
      {"nv_trt_llm_inflight_batcher_metrics",
       "TRT LLM inflight_batcher-specific metrics",
       "inflight_batcher_specific_metric",
       {{"micro_batch_id", [](const ExecutorGauges&) { return 0.0; }},  // there is one
        {"generation_requests",
         [](const ExecutorGauges& g) { return double(g.stats.num_generation_requests); }},
        {"total_context_tokens",
         [](const ExecutorGauges& g) { return double(g.stats.num_context_tokens); }},
        {"paused_requests",
         [](const ExecutorGauges& g) { return double(g.stats.num_paused_requests); }}}},
      {"nv_trt_llm_general_metrics",
       "General TRT LLM metrics",
       "general_type",
       {{"iteration_counter", [](const ExecutorGauges& g) { return double(g.stats.num_steps); }},
        {"timestamp", [](const ExecutorGauges& g) { return HeartbeatMicroseconds(g.stats); }}}},
  };
  return kFamilies;
}

void WriteGauges(const std::vector<ExecutorGauges>& executors, TextWriter& out) {
  if (executors.empty()) return;
  for (const GaugeFamily& family : GaugeFamilies()) {
    out.Family(family.name, family.help, "gauge");
    for (const ExecutorGauges& executor : executors) {
      for (const Gauge& gauge : family.gauges) {
        // All discriminators but one sort before "model".
        const Label model{"model", executor.model};
        const Label kind{family.label, gauge.value_name};
        const bool is_kind_first = family.label < std::string_view("model");
        const Label labels[] = {is_kind_first ? kind : model,
                                is_kind_first ? model : kind,
                                {"version", executor.version}};
        out.Sample(labels, gauge.value(executor));
      }
    }
  }
}

struct TokenCounter {
  std::string_view name;
  std::string_view help;
  int64_t ExecutorStats::*value;
};

constexpr TokenCounter kTokenCounters[] = {
    {"inflight_tokens_generated_total", "Tokens generated", &ExecutorStats::tokens_generated},
    {"inflight_prompt_tokens_total", "Prompt tokens of admitted requests",
     &ExecutorStats::prompt_tokens},
    {"inflight_prompt_tokens_cached_total", "Prompt tokens taken from reused KV blocks",
     &ExecutorStats::prompt_tokens_cached},
};

void WriteTokenCounters(const std::vector<ExecutorGauges>& executors, TextWriter& out) {
  if (executors.empty()) return;
  for (const TokenCounter& counter : kTokenCounters) {
    out.Family(counter.name, counter.help, "counter");
    for (const ExecutorGauges& executor : executors) {
      const Label labels[] = {{"model", executor.model}, {"version", executor.version}};
      out.Sample(labels, static_cast<uint64_t>(executor.stats.*counter.value));
    }
  }
}

}  // namespace

std::string MetricsPage(const serving::Server& server) {
  std::vector<ModelSample> models;
  for (const auto& model : server.models()) {
    models.push_back({model->name(), model->version(), model->statistics().Snapshot()});
  }
  TextWriter out;
  if (!models.empty()) {
    for (const CounterFamily& family : kRequestFamilies) {
      out.Family(family.name, family.help, family.type);
      for (const ModelSample& model : models) {
        const Label labels[] = {{"model", model.name}, {"version", model.version}};
        out.Sample(labels, family.value(model.statistics));
      }
    }
    WriteFailures(models, out);
    WriteHistograms(models, out);
  }
  const std::vector<ExecutorGauges> executors = server.executor_gauges();
  WriteGauges(executors, out);
  WriteTokenCounters(executors, out);
  return out.Take();
}

}  // namespace inflight::metrics

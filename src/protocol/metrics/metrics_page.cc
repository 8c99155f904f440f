// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/metrics_page.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol/metrics/iteration_gauges.h"
#include "protocol/metrics/router_gauges.h"
#include "protocol/metrics/text_writer.h"
#include "serving/statistics/statistics.h"

namespace inflight::metrics {
namespace {

using serving::ExecutorGauges;
using serving::FailureReason;
using serving::StatisticsSnapshot;

// The labels of a model's series in the order of the alphabet: model, version, where repositories
// are namespaces its own, on a GPU the GPU's UUID, and `_<tag>` for each of metric_tags of its
// configuration.
class ModelLabels {
 public:
  ModelLabels(const serving::Model& model, const std::vector<std::string>& gpu_uuids) {
    for (const serving::MemoryUsage& usage : model.memory_usage()) {
      const auto gpu = static_cast<size_t>(usage.id);
      if (usage.type == "GPU" && gpu < gpu_uuids.size()) labels_["gpu_uuid"] = gpu_uuids[gpu];
    }
    labels_["model"] = model.name();
    labels_["version"] = model.version();
    if (!model.name_space().empty()) labels_["namespace"] = model.name_space();
    for (const auto& [tag, value] : model.config().metric_tags()) labels_["_" + tag] = value;
  }

  // With `more` labels of a series beside them.
  std::vector<Label> With(std::span<const Label> more = {}) const {
    std::vector<Label> labels(more.begin(), more.end());
    labels.insert(labels.end(), labels_.begin(), labels_.end());
    std::sort(labels.begin(), labels.end());
    return labels;
  }

 private:
  std::map<std::string, std::string> labels_;
};

struct ModelSample {
  std::string name;
  std::string version;
  std::string name_space;
  ModelLabels labels;
  double load_seconds = 0;
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
  bool is_latency = false;  // there unless counter_latencies=false
};

constexpr CounterFamily kRequestFamilies[] = {
    {"nv_inference_request_success", "Number of successful inference requests, all batch sizes",
     "counter", [](const StatisticsSnapshot& s) { return s.success.count; }, true},
    {"nv_inference_count", "Number of inferences performed (does not include cached requests)",
     "counter", [](const StatisticsSnapshot& s) { return s.inference_count; }},
    {"nv_inference_exec_count",
     "Number of model executions performed (does not include cached requests)", "counter",
     [](const StatisticsSnapshot& s) { return s.execution_count; }},
    {"nv_inference_request_duration_us",
     "Cumulative inference request duration in microseconds (includes cached requests)", "counter",
     [](const StatisticsSnapshot& s) { return Microseconds(s.success); }, true},
    {"nv_inference_queue_duration_us",
     "Cumulative inference queuing duration in microseconds (includes cached requests)", "counter",
     [](const StatisticsSnapshot& s) { return Microseconds(s.queue); }, true},
    {"nv_inference_compute_input_duration_us",
     "Cumulative compute input duration in microseconds (does not include cached requests)",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.compute_input); }, true},
    {"nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds (does not include cached requests)",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.compute_infer); }, true},
    {"nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds (does not include cached "
     "requests)",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.compute_output); }, true},
    {"nv_inference_pending_request_count",
     "Instantaneous number of pending requests awaiting execution per-model.", "gauge",
     [](const StatisticsSnapshot& s) { return s.pending_requests; }},
};

// Of models whose responses are cached.
constexpr CounterFamily kCacheFamilies[] = {
    {"nv_cache_num_hits_per_model", "Number of cache hits per model", "counter",
     [](const StatisticsSnapshot& s) { return s.cache_hit.count; }},
    {"nv_cache_num_misses_per_model", "Number of cache misses per model", "counter",
     [](const StatisticsSnapshot& s) { return s.cache_miss.count; }},
    {"nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.cache_hit); }, true},
    {"nv_cache_miss_duration_per_model", "Total cache miss duration per model, in microseconds",
     "counter", [](const StatisticsSnapshot& s) { return Microseconds(s.cache_miss); }, true},
};

// A family is there once a model has a series of it.
template <typename Families, typename Wanted>
void WriteCounterFamilies(const Families& families, const std::vector<ModelSample>& models,
                          const PageOptions& options, Wanted wanted, TextWriter& out) {
  for (const CounterFamily& family : families) {
    if (family.is_latency && !options.with_latency_counters) continue;
    bool is_announced = false;
    for (const ModelSample& model : models) {
      if (!wanted(model)) continue;
      if (!std::exchange(is_announced, true)) out.Family(family.name, family.help, family.type);
      out.Sample(model.labels.With(), family.value(model.statistics));
    }
  }
}

struct SummaryFamily {
  std::string_view name;
  std::string_view help;
  serving::SummarySnapshot serving::LatencySummaries::*summary;
  bool of_cached_models;    // has a series of them
  bool of_uncached_models;  // has a series of the others
};

// A cached model's request summary would mix answers with look-ups: it has none.
constexpr SummaryFamily kSummaryFamilies[] = {
    {"nv_inference_request_summary_us",
     "Summary of inference request duration in microseconds (includes cached requests)",
     &serving::LatencySummaries::request, false, true},
    {"nv_inference_queue_summary_us",
     "Summary of inference queuing duration in microseconds (includes cached requests)",
     &serving::LatencySummaries::queue, true, true},
    {"nv_inference_compute_input_summary_us",
     "Summary of inference compute input duration in microseconds (does not include cached "
     "requests)",
     &serving::LatencySummaries::compute_input, true, true},
    {"nv_inference_compute_infer_summary_us",
     "Summary of inference compute infer duration in microseconds (does not include cached "
     "requests)",
     &serving::LatencySummaries::compute_infer, true, true},
    {"nv_inference_compute_output_summary_us",
     "Summary of inference compute output duration in microseconds (does not include cached "
     "requests)",
     &serving::LatencySummaries::compute_output, true, true},
    {"nv_cache_hit_summary_per_model", "Summary of cache hit duration per model, in microseconds",
     &serving::LatencySummaries::cache_hit, true, false},
    {"nv_cache_miss_summary_per_model", "Summary of cache miss duration per model, in microseconds",
     &serving::LatencySummaries::cache_miss, true, false},
};

void WriteSummaries(const std::vector<ModelSample>& models, TextWriter& out) {
  for (const SummaryFamily& family : kSummaryFamilies) {
    bool is_announced = false;
    for (const ModelSample& model : models) {
      const StatisticsSnapshot& statistics = model.statistics;
      const bool has_series =
          statistics.has_cache ? family.of_cached_models : family.of_uncached_models;
      if (!statistics.summaries || !has_series) continue;
      if (!std::exchange(is_announced, true)) out.Family(family.name, family.help, "summary");
      const serving::SummarySnapshot& summary = *statistics.summaries.*family.summary;
      out.SummarySamples(model.labels.With(), statistics.quantiles, summary.values, summary.sum,
                         summary.count);
    }
  }
}

void WriteFailures(const std::vector<ModelSample>& models, bool with_reasons, TextWriter& out) {
  static constexpr std::pair<std::string_view, FailureReason> kReasons[] = {
      {"BACKEND", FailureReason::kBackend},
      {"CANCELED", FailureReason::kCanceled},
      {"OTHER", FailureReason::kOther},
      {"REJECTED", FailureReason::kRejected}};
  out.Family("nv_inference_request_failure", "Number of failed inference requests, all batch sizes",
             "counter");
  for (const ModelSample& model : models) {
    if (!with_reasons) {
      out.Sample(model.labels.With(), model.statistics.fail.count);
      continue;
    }
    for (const auto& [reason_name, reason] : kReasons) {
      const Label label[] = {{"reason", reason_name}};
      const auto found = model.statistics.failures.find(reason);
      out.Sample(model.labels.With(label),
                 found == model.statistics.failures.end() ? uint64_t{0} : found->second);
    }
  }
}

void WriteLoadDurations(const std::vector<ModelSample>& models, TextWriter& out) {
  out.Family("nv_model_load_duration_secs", "Model load time in seconds", "gauge");
  for (const ModelSample& model : models) out.Sample(model.labels.With(), model.load_seconds);
}

// Pinned memory is taken as memory plans say: all that there is, is in use. None without a GPU.
void WritePinnedMemory(const std::vector<std::shared_ptr<serving::Model>>& models,
                       TextWriter& out) {
  uint64_t bytes = 0;
  for (const auto& model : models) {
    for (const serving::MemoryUsage& usage : model->memory_usage())
      if (usage.type == "CPU_PINNED") bytes += usage.bytes;
  }
  if (bytes == 0) return;
  out.Family("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes",
             "gauge");
  out.Sample({}, bytes);
  out.Family("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes",
             "gauge");
  out.Sample({}, bytes);
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
    {"inflight_request_prompt_tokens", "Prompt tokens of successful requests",
     &StatisticsSnapshot::prompt_tokens},
    {"inflight_request_output_tokens", "Generated tokens of successful requests",
     &StatisticsSnapshot::output_tokens},
    {"inflight_request_ms", "Milliseconds from a successful request's arrival to its last token",
     &StatisticsSnapshot::request_ms},
    {"nv_inference_first_response_histogram_ms",
     "Duration from request to first response in milliseconds",
     &StatisticsSnapshot::first_response_ms},
};

// Models without token latencies (preprocessing, ensembles) have none of these series.
void WriteHistograms(const std::vector<ModelSample>& models, TextWriter& out) {
  for (const HistogramFamily& family : kHistogramFamilies) {
    bool is_announced = false;
    for (const ModelSample& model : models) {
      const serving::Histogram& histogram = model.statistics.*family.histogram;
      if (histogram.counts.size() != histogram.upper_bounds.size() + 1) continue;  // not kept
      if (!std::exchange(is_announced, true)) out.Family(family.name, family.help, "histogram");
      out.HistogramSamples(model.labels.With(), histogram.upper_bounds, histogram.counts,
                           histogram.sum);
    }
  }
}

// ---- Per executor ----

void WriteGauges(const std::vector<ExecutorGauges>& executors, bool with_reuse, TextWriter& out) {
  using serving::GaugeFamily;
  for (const GaugeFamily family :
       {GaugeFamily::kRequest, GaugeFamily::kRuntimeMemory, GaugeFamily::kKvCacheBlock,
        GaugeFamily::kInflightBatcher, GaugeFamily::kV1, GaugeFamily::kGeneral}) {
    const serving::GaugeFamilyInfo& info = serving::InfoOf(family);
    bool is_announced = false;
    for (const ExecutorGauges& executor : executors) {
      for (const serving::IterationField* field : serving::FieldsOf(executor.profile)) {
        if (field->family != family || (field->tells_reuse && !with_reuse)) continue;
        if (!std::exchange(is_announced, true)) out.Family(info.name, info.help, "gauge");
        out.Sample(
            LabelsOf(executor, {{info.label, field->label_value}}),
            std::string_view(serving::FieldText(*field, executor.iteration, executor.profile)));
      }
    }
  }
}

// Of the executor's model; null where it is gone meanwhile.
const StatisticsSnapshot* StatisticsOf(const ExecutorGauges& executor,
                                       const std::vector<ModelSample>& models) {
  for (const ModelSample& model : models) {
    if (model.name == executor.model && model.version == executor.version &&
        model.name_space == executor.name_space) {
      return &model.statistics;
    }
  }
  return nullptr;
}

// The TensorRT-LLM back-end's histograms of lengths, of releases that had them.
void WriteLengths(const std::vector<ExecutorGauges>& executors,
                  const std::vector<ModelSample>& models, TextWriter& out) {
  struct Family {
    std::string_view name;
    std::string_view kind;
    serving::Histogram StatisticsSnapshot::*histogram;
  };
  static constexpr Family kFamilies[] = {
      {"nv_llm_input_token_len", "total_input_tokens", &StatisticsSnapshot::prompt_tokens},
      {"nv_llm_output_token_len", "total_output_tokens", &StatisticsSnapshot::output_tokens}};
  constexpr int kSinceRelease = 16;
  for (const Family& family : kFamilies) {
    bool is_announced = false;
    for (const ExecutorGauges& executor : executors) {
      if (executor.profile.release < kSinceRelease) continue;
      const StatisticsSnapshot* statistics = StatisticsOf(executor, models);
      if (statistics == nullptr) continue;
      if (!std::exchange(is_announced, true)) {
        out.Family(family.name, "TRT LLM response metrics", "histogram");
      }
      const serving::Histogram& histogram = statistics->*family.histogram;
      out.HistogramSamples(LabelsOf(executor, {{"response_metric_type", family.kind}}),
                           histogram.upper_bounds, histogram.counts, histogram.sum);
    }
  }
}

void WriteFinished(const std::vector<ExecutorGauges>& executors,
                   const std::vector<ModelSample>& models, TextWriter& out) {
  bool is_announced = false;
  for (const ExecutorGauges& executor : executors) {
    const StatisticsSnapshot* statistics = StatisticsOf(executor, models);
    if (statistics == nullptr) continue;
    if (!std::exchange(is_announced, true))
      out.Family("inflight_requests_finished_total", "Successful requests, by why they ended",
                 "counter");
    for (const auto& [reason, count] : statistics->finished)
      out.Sample(LabelsOf(executor, {{"finish_reason", FinishReasonName(reason)}}), count);
  }
}

struct ExecutorCounter {
  std::string_view name;
  std::string_view help;
  int64_t ExecutorStats::*value;
  bool tells_reuse = false;
};

constexpr ExecutorCounter kExecutorCounters[] = {
    {"inflight_tokens_generated_total", "Tokens generated", &ExecutorStats::tokens_generated},
    {"inflight_prompt_tokens_total", "Prompt tokens of admitted requests",
     &ExecutorStats::prompt_tokens},
    {"inflight_prompt_tokens_cached_total", "Prompt tokens taken from reused KV blocks",
     &ExecutorStats::prompt_tokens_cached, true},
    {"inflight_kv_blocks_reused_total", "KV blocks of prompts found in the cache",
     &ExecutorStats::kv_blocks_reused, true},
    {"inflight_kv_blocks_missed_total", "KV blocks of prompts that had to be computed",
     &ExecutorStats::kv_blocks_missed, true},
    {"inflight_kv_blocks_offloaded_total", "KV blocks copied to the host pool",
     &ExecutorStats::kv_blocks_offloaded},
    {"inflight_kv_blocks_onboarded_total", "KV blocks copied back from the host pool",
     &ExecutorStats::kv_blocks_onboarded, true},
    {"inflight_draft_tokens_total", "Draft tokens that were verified",
     &ExecutorStats::tokens_drafted},
    {"inflight_draft_tokens_accepted_total", "Draft tokens that became output",
     &ExecutorStats::drafts_accepted},
};

void WriteCounters(const std::vector<ExecutorGauges>& executors, bool with_reuse, TextWriter& out) {
  if (executors.empty()) return;
  for (const ExecutorCounter& counter : kExecutorCounters) {
    if (counter.tells_reuse && !with_reuse) continue;
    out.Family(counter.name, counter.help, "counter");
    for (const ExecutorGauges& executor : executors) {
      out.Sample(LabelsOf(executor), static_cast<uint64_t>(executor.stats.*counter.value));
    }
  }
}

void WriteSleep(const std::vector<ExecutorGauges>& executors, TextWriter& out) {
  if (executors.empty()) return;
  out.Family("inflight_sleep_level", "0 while the model is awake, else how much it gave back",
             "gauge");
  for (const ExecutorGauges& executor : executors)
    out.Sample(LabelsOf(executor), static_cast<uint64_t>(executor.stats.sleep_level));
}

void WriteRequestMemory(const MemoryAccount& memory, TextWriter& out) {
  out.Family("inflight_request_memory_bytes", "Bytes that clients make the server hold", "gauge");
  out.Sample({}, uint64_t{memory.used_bytes()});
  out.Family("inflight_request_memory_limit_bytes", "The most that it holds for them", "gauge");
  out.Sample({}, uint64_t{memory.limits().hard_bytes});
  out.Family("inflight_request_memory_refused_total",
             "Requests and answers that there was no room for", "counter");
  out.Sample({}, memory.num_refused());
  out.Family("inflight_request_memory_ended_total",
             "Connections that were closed to make room for others", "counter");
  out.Sample({}, memory.num_ended());
}

}  // namespace

std::string MetricsPage(const serving::Server& server, const PageOptions& options) {
  std::vector<ModelSample> models;
  const auto loaded = server.models();
  for (const auto& model : loaded) {
    models.push_back({model->name(), model->version(), model->name_space(),
                      ModelLabels(*model, options.gpu_uuids), model->load_seconds(),
                      model->statistics().Snapshot()});
  }
  TextWriter out;
  if (!models.empty()) {
    WriteCounterFamilies(
        kRequestFamilies, models, options, [](const ModelSample&) { return true; }, out);
    WriteCounterFamilies(
        kCacheFamilies, models, options,
        [](const ModelSample& model) { return model.statistics.has_cache; }, out);
    WriteFailures(models, options.with_failure_reasons, out);
    WriteLoadDurations(models, out);
    WriteSummaries(models, out);
    WriteHistograms(models, out);
  }
  WritePinnedMemory(loaded, out);
  if (options.memory != nullptr) WriteRequestMemory(*options.memory, out);
  const std::vector<ExecutorGauges> executors = server.executor_gauges(options.with_vllm_names);
  WriteGauges(executors, options.with_reuse, out);
  WriteLengths(executors, models, out);
  WriteFinished(executors, models, out);
  WriteCounters(executors, options.with_reuse, out);
  WriteSleep(executors, out);
  WriteIterationGauges(executors, options.with_reuse, out);
  if (options.with_vllm_names) {
    std::vector<RouterModel> known;
    for (const ExecutorGauges& executor : executors) {
      known.push_back({&executor, StatisticsOf(executor, models)});
    }
    WriteRouterGauges(known, options.with_reuse, out);
  }
  return out.Take();
}

}  // namespace inflight::metrics

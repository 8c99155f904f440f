// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/router_gauges.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

namespace inflight::metrics {
namespace {

using serving::ExecutorGauges;
using serving::Iteration;

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

void WriteCacheInfo(const std::vector<ExecutorGauges>& executors, TextWriter& out) {
  out.Family("vllm:cache_config_info", "Tokens of a KV block, and how many blocks there are",
             "gauge");
  for (size_t i = 0; i < executors.size(); ++i) {
    const Iteration& it = executors[i].iteration;
    const std::string engine = std::to_string(i);
    const std::string block_size = std::to_string(it.block_size);
    const std::string num_blocks = std::to_string(it.stats.kv_blocks_max);
    out.Sample(RouterLabels(executors[i], engine,
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
void WriteAdapters(const std::vector<ExecutorGauges>& executors, TextWriter& out) {
  const auto has_names = [](const ExecutorGauges& e) { return e.adapters.has_value(); };
  if (std::none_of(executors.begin(), executors.end(), has_names)) return;
  out.Family("vllm:lora_requests_info", "Adapters with names that are loaded; when that was so",
             "gauge");
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  for (size_t i = 0; i < executors.size(); ++i) {
    if (!executors[i].adapters) continue;
    const std::string engine = std::to_string(i);
    const std::string max = std::to_string(executors[i].adapters->max);
    const std::string running = List(executors[i].adapters->names);
    out.Sample(
        RouterLabels(
            executors[i], engine,
            {{"max_lora", max}, {"running_lora_adapters", running}, {"waiting_lora_adapters", ""}}),
        now.count());
  }
}

}  // namespace

void WriteRouterGauges(const std::vector<ExecutorGauges>& executors, TextWriter& out) {
  if (executors.empty()) return;
  for (const RouterGauge& gauge : kRouterGauges) {
    out.Family(gauge.name, gauge.help, "gauge");
    for (size_t i = 0; i < executors.size(); ++i) {
      const std::string engine = std::to_string(i);
      out.Sample(RouterLabels(executors[i], engine), gauge.value(executors[i].iteration));
    }
  }
  WriteCacheInfo(executors, out);
  WriteAdapters(executors, out);
}

}  // namespace inflight::metrics

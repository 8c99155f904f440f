// SPDX-License-Identifier: Apache-2.0
// Counts and times of one or all models (docs/metrics.md, "Statistics"). LLMs have the newest
// records of their executor besides, members that others do not know.
#include "serving/statistics/statistics.h"

#include <algorithm>

#include "json/json_writer.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"
#include "serving/statistics/iteration_stats_json.h"
#include "serving/statistics/request_stats_json.h"

namespace inflight::kserve_http {
namespace {

void WriteDuration(std::string_view name, const serving::DurationStat& stat, json::Writer& out) {
  out.Key(name).BeginObject();
  out.Key("count").Uint(stat.count);
  out.Key("ns").Uint(stat.ns);
  out.EndObject();
}

void WriteExecutor(const serving::ExecutorGauges& executor, json::Writer& out) {
  const bool has_iteration = executor.iteration.timestamp_us != 0;
  out.Key("iteration_stats")
      .Raw(has_iteration ? serving::IterationStatsJson(executor.iteration, executor.profile)
                         : "null");
  if (executor.requests)
    out.Key("request_stats").Raw(serving::RequestStatsJson(*executor.requests));
}

void WriteModel(serving::Model& model, const std::vector<serving::ExecutorGauges>& executors,
                json::Writer& out) {
  const serving::StatisticsSnapshot s = model.statistics().Snapshot();
  out.BeginObject();
  out.Key("name").String(model.name());
  out.Key("version").String(model.version());
  out.Key("last_inference").Uint(s.last_inference_ms);
  out.Key("inference_count").Uint(s.inference_count);
  out.Key("execution_count").Uint(s.execution_count);
  out.Key("inference_stats").BeginObject();
  WriteDuration("success", s.success, out);
  WriteDuration("fail", s.fail, out);
  WriteDuration("queue", s.queue, out);
  WriteDuration("compute_input", s.compute_input, out);
  WriteDuration("compute_infer", s.compute_infer, out);
  WriteDuration("compute_output", s.compute_output, out);
  WriteDuration("cache_hit", s.cache_hit, out);
  WriteDuration("cache_miss", s.cache_miss, out);
  out.EndObject();
  // Only for back-ends that report each response of a request; the TensorRT-LLM one does not.
  out.Key("response_stats").BeginObject().EndObject();
  out.Key("batch_stats").BeginArray();
  for (const auto& [batch_size, batch] : s.batches) {
    out.BeginObject();
    out.Key("batch_size").Uint(batch_size);
    WriteDuration("compute_input", batch.compute_input, out);
    WriteDuration("compute_infer", batch.compute_infer, out);
    WriteDuration("compute_output", batch.compute_output, out);
    out.EndObject();
  }
  out.EndArray();
  out.Key("memory_usage").BeginArray();
  for (const serving::MemoryUsage& usage : model.memory_usage()) {
    out.BeginObject();
    out.Key("type").String(usage.type);
    out.Key("id").Int(usage.id);
    out.Key("byte_size").Uint(usage.bytes);
    out.EndObject();
  }
  out.EndArray();
  const auto executor = std::find_if(
      executors.begin(), executors.end(), [&model](const serving::ExecutorGauges& gauges) {
        return gauges.model == model.name() && gauges.version == model.version() &&
               gauges.name_space == model.name_space();
      });
  if (executor != executors.end()) WriteExecutor(*executor, out);
  out.EndObject();
}

// This endpoint has its own texts, and answers 400 where the others say 404.
Status FindError(const Context& context, const Route& route) {
  if (route.version.empty() || !context.server.FindModel(route.model, "").ok()) {
    return InvalidArgument("requested model '" + route.model + "' is not available");
  }
  return InvalidArgument("requested model version is not available for model '" + route.model +
                         "'");
}

}  // namespace

http_listener::HttpResponse HandleStatistics(const Context& context, const Route& route,
                                             const http_listener::HttpRequest& request) {
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("model_stats").BeginArray();
  bool is_found = false;
  std::shared_ptr<serving::Model> wanted;
  if (!route.version.empty()) {
    const auto found = context.server.FindModel(route.model, route.version);
    if (found.status().code() == StatusCode::kInvalidArgument) return Error(found.status());
    if (found.ok()) wanted = *found;
  }
  // Records of iterations and requests tell, of all clients, what was found in the KV cache.
  std::vector<serving::ExecutorGauges> executors;
  if (SeesReuse(context.access, request)) executors = context.server.executor_gauges();
  for (const auto& model : context.server.models()) {
    const bool is_asked_for = route.model.empty() || (model->name() == route.model &&
                                                      (route.version.empty() || model == wanted));
    if (!is_asked_for) continue;
    is_found = true;
    WriteModel(*model, executors, out);
  }
  out.EndArray().EndObject();
  if (!is_found && !route.model.empty()) return Error(FindError(context, route));
  return Answer(200, kJson, std::move(body));
}

}  // namespace inflight::kserve_http

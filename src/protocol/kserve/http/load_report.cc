// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/load_report.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "json/json_writer.h"
#include "serving/statistics/iteration_metrics.h"

namespace inflight::kserve_http {
namespace {

// Sums over executors.
struct KvLoad {
  double used_blocks = 0;
  double max_blocks = 0;
  double max_tokens = 0;
};

// The samples that the metrics page shows of nv_trt_llm_kv_cache_block_metrics.
void AddExecutor(const serving::ExecutorGauges& executor, KvLoad& load) {
  double used = 0;
  double max = 0;
  double tokens_per_block = 0;
  for (const serving::IterationField* field : serving::FieldsOf(executor.profile)) {
    if (field->family != serving::GaugeFamily::kKvCacheBlock) continue;
    const double value = field->value(executor.iteration, executor.profile);
    if (field->label_value == "used") used = value;
    if (field->label_value == "max") max = value;
    if (field->label_value == "tokens_per") tokens_per_block = value;
  }
  load.used_blocks += used;
  load.max_blocks += max;
  load.max_tokens += max * tokens_per_block;
}

std::string Json(double utilization, uint64_t capacity) {
  std::string text = "JSON ";
  json::Writer out(text);
  out.BeginObject().Key("named_metrics").BeginObject();
  out.Key("kv_cache_utilization").Double(utilization);
  out.Key("max_token_capacity").Uint(capacity);
  out.EndObject().EndObject();
  return text;
}

std::string Text(double utilization, uint64_t capacity) {
  std::string text = "TEXT named_metrics.kv_cache_utilization=";
  json::Writer(text).Double(utilization);
  text += ", named_metrics.max_token_capacity=";
  return text + std::to_string(capacity);
}

}  // namespace

std::optional<LoadReport> AskedLoadReport(const http_listener::HttpRequest& request) {
  const std::string* format = request.FindHeader("endpoint-load-metrics-format");
  if (format == nullptr) return std::nullopt;
  if (*format == "text") return LoadReport::kText;
  if (*format == "json") return LoadReport::kJson;
  logging::Error("endpoint-load-metrics-format is neither 'text' nor 'json': no load report",
                 {{"format", *format}});
  return std::nullopt;
}

void AddLoadReport(const serving::Server& server, LoadReport report,
                   http_listener::Headers& headers) {
  KvLoad load;
  for (const serving::ExecutorGauges& executor : server.executor_gauges()) {
    AddExecutor(executor, load);
  }
  if (load.max_blocks <= 0) return;
  const double utilization = load.used_blocks / load.max_blocks;
  const auto capacity = static_cast<uint64_t>(load.max_tokens);
  headers.emplace_back("endpoint-load-metrics", report == LoadReport::kText
                                                    ? Text(utilization, capacity)
                                                    : Json(utilization, capacity));
}

}  // namespace inflight::kserve_http

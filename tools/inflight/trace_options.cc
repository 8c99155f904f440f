// SPDX-License-Identifier: Apache-2.0
#include "trace_options.h"

#include "base/log.h"
#include "base/status_macros.h"
#include "environment.h"
#include "protocol/otlp/otlp_exporter.h"
#include "serving/trace/trace_config.h"

namespace inflight::tool {
namespace {

// A former flag as the word of --trace-config that replaced it.
void AddFormer(const char* flag, const std::string& word, const std::string& value,
               std::vector<std::string>& words) {
  if (value.empty()) return;
  const std::string now = word + "=" + value;
  logging::Warning(std::string(flag) + " is deprecated, say --trace-config " + now);
  words.push_back(now);
}

}  // namespace

void AddTracing(config::Schema<ServeOptions>& schema) {
  schema.Section("Tracing");
  schema.Add(
      "trace_config", [](ServeOptions& o) -> auto& { return o.trace_config; },
      "level=<TIMESTAMPS, TENSORS or OFF>; rate=<every n-th request>; count=<traces in all>; "
      "mode=<triton or opentelemetry>; triton,file=<path>; triton,log-frequency=<traces a file>; "
      "opentelemetry,<url, resource, bsp_max_queue_size, bsp_schedule_delay or "
      "bsp_max_export_batch_size>=<value>.");
  schema.Add(
      "trace_file", [](ServeOptions& o) -> auto& { return o.trace_file; },
      "Deprecated: --trace-config triton,file=<path>.");
  schema.Add(
      "trace_level", [](ServeOptions& o) -> auto& { return o.trace_level; },
      "Deprecated: --trace-config level=<level>.");
  schema.Add(
      "trace_rate", [](ServeOptions& o) -> auto& { return o.trace_rate; },
      "Deprecated: --trace-config rate=<n>.");
  schema.Add(
      "trace_count", [](ServeOptions& o) -> auto& { return o.trace_count; },
      "Deprecated: --trace-config count=<n>.");
  schema.Add(
      "trace_log_frequency", [](ServeOptions& o) -> auto& { return o.trace_log_frequency; },
      "Deprecated: --trace-config triton,log-frequency=<n>.");
}

Result<serving::TraceOptions> MakeTraceOptions(const ServeOptions& options) {
  std::vector<std::string> words;
  AddFormer("--trace-file", "triton,file", options.trace_file, words);
  for (const std::string& level : options.trace_level)
    AddFormer("--trace-level", "level", level, words);
  AddFormer("--trace-rate", "rate", options.trace_rate, words);
  AddFormer("--trace-count", "count", options.trace_count, words);
  AddFormer("--trace-log-frequency", "triton,log-frequency", options.trace_log_frequency, words);
  words.insert(words.end(), options.trace_config.begin(), options.trace_config.end());
  ASSIGN_OR_RETURN(const serving::TraceConfig config,
                   serving::ParseTraceConfig(words, Environment));
  serving::TraceOptions trace{.start = config.start, .file = config.file, .exporter = nullptr};
  if (config.is_opentelemetry) {
    ASSIGN_OR_RETURN(trace.exporter, otlp::OtlpExporter::Create(config.opentelemetry));
  } else if (config.start.levels.any() && config.file.empty()) {
    logging::Warning("nothing is traced: --trace-config triton,file=<path> is not given");
  }
  return trace;
}

}  // namespace inflight::tool

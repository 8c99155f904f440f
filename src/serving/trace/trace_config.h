// SPDX-License-Identifier: Apache-2.0
// The words of --trace-config (docs/tracing.md):
//
//   level=TIMESTAMPS  rate=100  count=-1  mode=triton      of every mode; level may come twice
//   triton,file=/tmp/trace.json  triton,log-frequency=50
//   opentelemetry,url=...  opentelemetry,resource=<key>=<value>  opentelemetry,bsp_...=<number>
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "inflight/status.h"
#include "serving/trace/trace_settings.h"

namespace inflight::serving {

struct OpenTelemetryOptions {
  std::string url = "http://localhost:4318/v1/traces";
  std::vector<std::pair<std::string, std::string>> resource;  // attributes; later ones win
  // Spans wait in a queue, beyond whose size new ones are dropped, and leave in batches.
  int64_t max_queue_size = 2048;
  int64_t schedule_delay_ms = 5000;
  int64_t max_export_batch_size = 512;
};

struct TraceConfig {
  TraceSettings start;
  std::string file;
  bool is_opentelemetry = false;
  OpenTelemetryOptions opentelemetry;
};

// `environment` gives the value of a variable, "" where it is not set: what OTEL_BSP_* and
// OTEL_RESOURCE_ATTRIBUTES say holds where `words` say nothing.
// Errors: kInvalidArgument names the word and what is allowed.
using Environment = std::string (*)(const char* name);
Result<TraceConfig> ParseTraceConfig(const std::vector<std::string>& words,
                                     Environment environment);

}  // namespace inflight::serving

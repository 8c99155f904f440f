// SPDX-License-Identifier: Apache-2.0
// Traces as spans of OpenTelemetry, in OTLP's JSON (docs/tracing.md, "OpenTelemetry"):
//
//   InferRequest                     events of the front end
//     <model>                        REQUEST_START, QUEUE_START, REQUEST_END
//       compute                      COMPUTE_*
//       <model of a step> ...
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "serving/trace/trace.h"

namespace inflight::otlp {

struct SpanOptions {
  int64_t wall_clock_offset_ns = 0;  // what the wall clock is ahead of the monotonic one
  std::function<uint64_t()> random;  // for ids
};

// An element of "spans" for each span; none where nothing has a time.
std::vector<std::string> Spans(const serving::FinishedTrace& trace, const SpanOptions& options);

// The body of an export.
std::string ExportBody(const std::vector<std::pair<std::string, std::string>>& resource,
                       const std::vector<std::string>& spans);

}  // namespace inflight::otlp

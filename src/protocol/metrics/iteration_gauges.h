// SPDX-License-Identifier: Apache-2.0
// Gauges of our own: what the newest records of each executor say beside what the TensorRT-LLM
// back-end's gauges tell (docs/metrics.md, "Ours").
#pragma once

#include <vector>

#include "protocol/metrics/text_writer.h"
#include "serving/server/server.h"

namespace inflight::metrics {

// The labels of an executor's series in the order of the alphabet, with `more` that tell samples of
// a family apart.
std::vector<Label> LabelsOf(const serving::ExecutorGauges& executor, std::vector<Label> more = {});

void WriteIterationGauges(const std::vector<serving::ExecutorGauges>& executors, bool with_reuse,
                          TextWriter& out);

}  // namespace inflight::metrics

// SPDX-License-Identifier: Apache-2.0
// The load, the times and the tokens of each executor under the names by which routers and
// dashboards know vLLM's (docs/metrics.md, "Names of vLLM"). The names, their labels and what they
// mean: kubernetes-sigs/gateway-api-inference-extension/docs/proposals/003-model-server-protocol/;
// vllm-project/vllm/vllm/v1/metrics/loggers.py. Times are seconds.
#pragma once

#include <vector>

#include "protocol/metrics/text_writer.h"
#include "serving/server/server.h"
#include "serving/statistics/statistics.h"

namespace inflight::metrics {

// An executor, and the statistics of its model; null where the model is gone meanwhile.
struct RouterModel {
  const serving::ExecutorGauges* executor;
  const serving::StatisticsSnapshot* statistics = nullptr;
};

void WriteRouterGauges(const std::vector<RouterModel>& models, bool with_reuse, TextWriter& out);

}  // namespace inflight::metrics

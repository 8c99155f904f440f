// SPDX-License-Identifier: Apache-2.0
// The load of each executor under the names by which routers know vLLM's (docs/metrics.md, "Names
// of vLLM"). The names, their labels and what they mean:
// kubernetes-sigs/gateway-api-inference-extension/docs/proposals/003-model-server-protocol/.
#pragma once

#include <vector>

#include "protocol/metrics/text_writer.h"
#include "serving/server/server.h"

namespace inflight::metrics {

void WriteRouterGauges(const std::vector<serving::ExecutorGauges>& executors, TextWriter& out);

}  // namespace inflight::metrics

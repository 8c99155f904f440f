// SPDX-License-Identifier: Apache-2.0
// The metrics page: Triton's nv_inference_* families, the TensorRT-LLM back-end's nv_trt_llm_*
// gauges (docs/metrics.md) and our own inflight_* latencies and token counts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/memory_account.h"
#include "serving/server/server.h"

namespace inflight::metrics {

struct PageOptions {
  // nv_inference_request_failure by reason, as servers have had it since 24.07; else one series a
  // model, which older scripts expect.
  bool with_failure_reasons = true;
  // nv_inference_*_duration_us and the count of successful requests.
  bool with_latency_counters = true;
  // Also the families that routers read of vLLM (router_gauges.h).
  bool with_vllm_names = false;
  // Also what tells, over all clients, how much of their prompts was found in the KV cache.
  bool with_reuse = true;
  // By index, of the label `gpu_uuid` of models on a GPU; empty where they are not read.
  std::vector<std::string> gpu_uuids;
  // Whose gauges it shows; null where front ends hold nothing.
  std::shared_ptr<const MemoryAccount> memory;
};

std::string MetricsPage(const serving::Server& server, const PageOptions& options = {});

}  // namespace inflight::metrics

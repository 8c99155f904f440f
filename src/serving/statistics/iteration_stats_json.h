// SPDX-License-Identifier: Apache-2.0
// An iteration in the shape that TensorRT-LLM's executor gives it (toJsonStr of IterationStats,
// cpp/tensorrt_llm/executor/jsonSerialization.cpp of NVIDIA/TensorRT-LLM): members in
// alphabetical order, null for what does not apply (docs/metrics.md, "Iterations in the log").
#pragma once

#include <cstdint>
#include <string>

#include "serving/statistics/iteration_metrics.h"

namespace inflight::serving {

// {"cpuMemUsage":...,"crossKvCacheStats":null,"gpuMemUsage":...,"inflightBatchingStats":{...},...}
std::string IterationStatsJson(const Iteration& iteration, const IterationProfile& profile);

// Of the blocks of prompts that might have been reused, the share that was. 0 without any.
double CacheHitRate(int64_t blocks_reused, int64_t blocks_missed);
// Tokens of the iteration by rows that yielded any. 0 without such a row.
double TokensPerRow(const Iteration& iteration);

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
// Iteration statistics: members as in docs/metrics.md, named as TensorRT-LLM's JSON names them.
#include "serving/statistics/iteration_stats_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace inflight::serving {
namespace {

Iteration SomeIteration() {
  return {.stats = {.num_steps = 123,
                    .num_active_requests = 3,
                    .num_queued_requests = 9,
                    .max_active_requests = 8,
                    .num_scheduled_requests = 3,
                    .num_context_requests = 1,
                    .num_generation_requests = 2,
                    .num_paused_requests = 4,
                    .num_context_tokens = 77,
                    .micro_batch_id = 1,
                    .kv_blocks_max = 16,
                    .kv_blocks_free = 12,
                    .kv_blocks_used = 5,
                    .kv_blocks_reused = 6,
                    .kv_blocks_missed = 18,
                    .kv_blocks_alloc_total = 30,
                    .kv_blocks_alloc_new = 24,
                    .cpu_memory_bytes = 5'000'000'000,
                    .gpu_memory_bytes = 17,
                    .pinned_memory_bytes = 19,
                    .last_step_ns = 2'500'000},
          .block_size = 64,
          .max_batch_size = 8,
          .max_num_tokens = 256,
          .timestamp_us = 1'715'988'519'000'042,  // 2024-05-17 23:28:39 UTC
          .num_terminated = 2,
          .num_new_active = 1,
          .new_active_queue_ns = 1'250'000,
          .rows_decoded = 2,
          .tokens_decoded = 3};
}

TEST(IterationStatsJson, HasTheMembersOfTheExecutorsJson) {
  EXPECT_EQ(IterationStatsJson(SomeIteration(), {}),
            R"({"cpuMemUsage":5000000000,"crossKvCacheStats":null,"gpuMemUsage":17,)"
            R"("inflightBatchingStats":{"avgNumDecodedTokensPerIter":1.5,"microBatchId":1,)"
            R"("numContextRequests":1,"numCtxTokens":77,"numGenRequests":2,)"
            R"("numPausedRequests":4,"numScheduledRequests":3},)"
            R"("iter":123,"iterLatencyMS":2.5,)"
            R"("kvCacheStats":{"allocNewBlocks":24,"allocTotalBlocks":30,"cacheHitRate":0.25,)"
            R"("freeNumBlocks":12,"maxNumBlocks":16,"missedBlocks":18,"reusedBlocks":6,)"
            R"("tokensPerBlock":64,"usedNumBlocks":5},)"
            R"("maxBatchSizeRuntime":8,"maxBatchSizeStatic":8,"maxBatchSizeTunerRecommended":0,)"
            R"("maxNumActiveRequests":8,"maxNumTokensRuntime":256,"maxNumTokensStatic":256,)"
            R"("maxNumTokensTunerRecommended":0,"newActiveRequestsQueueLatencyMS":1.25,)"
            R"("numActiveRequests":3,"numCompletedRequests":2,"numNewActiveRequests":1,)"
            R"("numQueuedRequests":9,"pinnedMemUsage":19,"staticBatchingStats":null,)"
            R"("timestamp":"05-17-2024 23:28:39.000042"})");
}

TEST(IterationStatsJson, OfAStaticBatchHasItsOwnPart) {
  const auto json =
      nlohmann::json::parse(IterationStatsJson(SomeIteration(), {.is_static_batch = true}));
  EXPECT_TRUE(json.at("inflightBatchingStats").is_null());
  EXPECT_EQ(json.at("staticBatchingStats").dump(),
            R"({"emptyGenSlots":5,"numContextRequests":1,"numCtxTokens":77,"numGenTokens":2,)"
            R"("numScheduledRequests":3})");
}

TEST(IterationStatsJson, SharesOfNothingAreZero) {
  const auto json = nlohmann::json::parse(IterationStatsJson({}, {}));
  EXPECT_EQ(json.at("kvCacheStats").at("cacheHitRate"), 0);
  EXPECT_EQ(json.at("inflightBatchingStats").at("avgNumDecodedTokensPerIter"), 0);
}

}  // namespace
}  // namespace inflight::serving

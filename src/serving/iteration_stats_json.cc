// SPDX-License-Identifier: Apache-2.0
#include "serving/iteration_stats_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace inflight::serving {
namespace {

using nlohmann::json;

double Milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

json KvCacheJson(const Iteration& iteration) {
  const ExecutorStats& s = iteration.stats;
  return {
      {"maxNumBlocks", s.kv_blocks_max},
      {"freeNumBlocks", s.kv_blocks_free},
      {"usedNumBlocks", s.kv_blocks_used},
      {"tokensPerBlock", iteration.block_size},
      {"allocTotalBlocks", s.kv_blocks_alloc_total},
      {"allocNewBlocks", s.kv_blocks_alloc_new},
      {"reusedBlocks", s.kv_blocks_reused},
      {"missedBlocks", s.kv_blocks_missed},
      {"cacheHitRate", CacheHitRate(s)},
  };
}

json InFlightJson(const Iteration& iteration) {
  const ExecutorStats& s = iteration.stats;
  return {
      {"numScheduledRequests", s.num_scheduled_requests},
      {"numContextRequests", s.num_context_requests},
      {"numGenRequests", s.num_generation_requests},
      {"numPausedRequests", s.num_paused_requests},
      {"numCtxTokens", s.num_context_tokens},
      {"microBatchId", s.micro_batch_id},
      {"avgNumDecodedTokensPerIter", TokensPerRow(iteration)},
  };
}

json StaticJson(const Iteration& iteration) {
  const ExecutorStats& s = iteration.stats;
  return {
      {"numScheduledRequests", s.num_scheduled_requests},
      {"numContextRequests", s.num_context_requests},
      {"numCtxTokens", s.num_context_tokens},
      {"numGenTokens", s.num_generation_requests},  // one a row
      {"emptyGenSlots", std::max(0, s.max_active_requests - s.num_scheduled_requests)},
  };
}

}  // namespace

double CacheHitRate(const ExecutorStats& stats) {
  if (stats.kv_blocks_reused == 0) return 0;
  return static_cast<double>(stats.kv_blocks_reused) /
         static_cast<double>(stats.kv_blocks_reused + stats.kv_blocks_missed);
}

double TokensPerRow(const Iteration& iteration) {
  if (iteration.rows_decoded == 0) return 0;
  return static_cast<double>(iteration.tokens_decoded) /
         static_cast<double>(iteration.rows_decoded);
}

std::string IterationStatsJson(const Iteration& iteration, const IterationProfile& profile) {
  const ExecutorStats& s = iteration.stats;
  const bool is_static = profile.is_static_batch;
  return json{
      {"timestamp", TimestampText(iteration.timestamp_us, /*with_microseconds=*/true)},
      {"iter", s.num_steps},
      {"iterLatencyMS", Milliseconds(s.last_step_ns)},
      {"newActiveRequestsQueueLatencyMS", Milliseconds(iteration.new_active_queue_ns)},
      {"numNewActiveRequests", iteration.num_new_active},
      {"numActiveRequests", s.num_active_requests},
      {"numQueuedRequests", s.num_queued_requests},
      {"numCompletedRequests", iteration.num_terminated},
      {"maxNumActiveRequests", s.max_active_requests},
      {"maxBatchSizeStatic", iteration.max_batch_size},
      {"maxBatchSizeTunerRecommended", 0},  // nothing tunes them
      {"maxBatchSizeRuntime", iteration.max_batch_size},
      {"maxNumTokensStatic", iteration.max_num_tokens},
      {"maxNumTokensTunerRecommended", 0},
      {"maxNumTokensRuntime", iteration.max_num_tokens},
      {"gpuMemUsage", s.gpu_memory_bytes},
      {"cpuMemUsage", s.cpu_memory_bytes},
      {"pinnedMemUsage", s.pinned_memory_bytes},
      {"kvCacheStats", KvCacheJson(iteration)},
      {"crossKvCacheStats", nullptr},  // of models with an encoder, which are not served
      {"staticBatchingStats", is_static ? StaticJson(iteration) : json(nullptr)},
      {"inflightBatchingStats", is_static ? json(nullptr) : InFlightJson(iteration)},
  }
      .dump();
}

}  // namespace inflight::serving

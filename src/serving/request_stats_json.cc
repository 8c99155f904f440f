// SPDX-License-Identifier: Apache-2.0
#include "serving/request_stats_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace inflight::serving {
namespace {

// Of the blocks that might have been reused, the share that was.
float HitRate(const RequestStats& stats) {
  if (stats.kv_blocks_reused == 0) return 0.0F;
  return static_cast<float>(stats.kv_blocks_reused) /
         static_cast<float>(stats.kv_blocks_reused + stats.kv_blocks_missed);
}

nlohmann::json Json(const RequestStats& stats) {
  return {
      {"id", stats.id},
      {"sequenceIndex", stats.sequence_index},
      {"stage", RequestStageName(stats.stage)},
      {"contextPrefillPosition", stats.context_prefill_position},
      {"numGeneratedTokens", stats.num_generated_tokens},
      {"avgNumDecodedTokensPerIter", stats.avg_num_decoded_tokens_per_iter},
      {"scheduled", stats.scheduled},
      {"paused", stats.paused},
      {"disServingStats", nullptr},
      {"allocTotalBlocksPerRequest", stats.kv_blocks_alloc_total},
      {"allocNewBlocksPerRequest", stats.kv_blocks_alloc_new},
      {"reusedBlocksPerRequest", stats.kv_blocks_reused},
      {"missedBlocksPerRequest", stats.kv_blocks_missed},
      {"kvCacheHitRatePerRequest", HitRate(stats)},
  };
}

}  // namespace

std::string RequestStatsJson(const RequestStatsPerIteration& record) {
  nlohmann::json requests = nlohmann::json::array();
  for (const RequestStats& stats : record.requests) requests.push_back(Json(stats));
  return nlohmann::json{{"iter", record.iter}, {"requestStats", std::move(requests)}}.dump();
}

}  // namespace inflight::serving

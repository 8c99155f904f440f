// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/iteration_stats_json.h"

#include <algorithm>

#include "json/json_writer.h"

namespace inflight::serving {
namespace {

double Milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

void WriteKvCache(const Iteration& iteration, json::Writer& writer) {
  const ExecutorStats& s = iteration.stats;
  writer.BeginObject();
  writer.Key("allocNewBlocks").Int(s.kv_blocks_alloc_new);
  writer.Key("allocTotalBlocks").Int(s.kv_blocks_alloc_total);
  writer.Key("cacheHitRate").Double(CacheHitRate(s.kv_blocks_reused, s.kv_blocks_missed));
  writer.Key("freeNumBlocks").Int(s.kv_blocks_free);
  writer.Key("maxNumBlocks").Int(s.kv_blocks_max);
  writer.Key("missedBlocks").Int(s.kv_blocks_missed);
  writer.Key("reusedBlocks").Int(s.kv_blocks_reused);
  writer.Key("tokensPerBlock").Int(iteration.block_size);
  writer.Key("usedNumBlocks").Int(s.kv_blocks_used);
  writer.EndObject();
}

void WriteInFlight(const Iteration& iteration, json::Writer& writer) {
  const ExecutorStats& s = iteration.stats;
  writer.BeginObject();
  writer.Key("avgNumDecodedTokensPerIter").Double(TokensPerRow(iteration));
  writer.Key("microBatchId").Int(s.micro_batch_id);
  writer.Key("numContextRequests").Int(s.num_context_requests);
  writer.Key("numCtxTokens").Int(s.num_context_tokens);
  writer.Key("numGenRequests").Int(s.num_generation_requests);
  writer.Key("numPausedRequests").Int(s.num_paused_requests);
  writer.Key("numScheduledRequests").Int(s.num_scheduled_requests);
  writer.EndObject();
}

void WriteStatic(const Iteration& iteration, json::Writer& writer) {
  const ExecutorStats& s = iteration.stats;
  writer.BeginObject();
  writer.Key("emptyGenSlots").Int(std::max(0, s.max_active_requests - s.num_scheduled_requests));
  writer.Key("numContextRequests").Int(s.num_context_requests);
  writer.Key("numCtxTokens").Int(s.num_context_tokens);
  writer.Key("numGenTokens").Int(s.num_generation_requests);  // one a row
  writer.Key("numScheduledRequests").Int(s.num_scheduled_requests);
  writer.EndObject();
}

}  // namespace

double CacheHitRate(int64_t blocks_reused, int64_t blocks_missed) {
  if (blocks_reused == 0) return 0;
  return static_cast<double>(blocks_reused) / static_cast<double>(blocks_reused + blocks_missed);
}

double TokensPerRow(const Iteration& iteration) {
  if (iteration.rows_decoded == 0) return 0;
  return static_cast<double>(iteration.tokens_decoded) /
         static_cast<double>(iteration.rows_decoded);
}

std::string IterationStatsJson(const Iteration& iteration, const IterationProfile& profile) {
  const ExecutorStats& s = iteration.stats;
  const bool is_static = profile.is_static_batch;
  std::string line;
  json::Writer writer(line);
  writer.BeginObject();
  writer.Key("cpuMemUsage").Int(s.cpu_memory_bytes);
  writer.Key("crossKvCacheStats").Null();  // of models with an encoder, which are not served
  writer.Key("gpuMemUsage").Int(s.gpu_memory_bytes);
  writer.Key("inflightBatchingStats");
  if (is_static) {
    writer.Null();
  } else {
    WriteInFlight(iteration, writer);
  }
  writer.Key("iter").Int(s.num_steps);
  writer.Key("iterLatencyMS").Double(Milliseconds(s.last_step_ns));
  writer.Key("kvCacheStats");
  WriteKvCache(iteration, writer);
  writer.Key("maxBatchSizeRuntime").Int(iteration.max_batch_size);
  writer.Key("maxBatchSizeStatic").Int(iteration.max_batch_size);
  writer.Key("maxBatchSizeTunerRecommended").Int(0);  // nothing tunes them
  writer.Key("maxNumActiveRequests").Int(s.max_active_requests);
  writer.Key("maxNumTokensRuntime").Int(iteration.max_num_tokens);
  writer.Key("maxNumTokensStatic").Int(iteration.max_num_tokens);
  writer.Key("maxNumTokensTunerRecommended").Int(0);
  writer.Key("newActiveRequestsQueueLatencyMS").Double(Milliseconds(iteration.new_active_queue_ns));
  writer.Key("numActiveRequests").Int(s.num_active_requests);
  writer.Key("numCompletedRequests").Int(iteration.num_terminated);
  writer.Key("numNewActiveRequests").Int(iteration.num_new_active);
  writer.Key("numQueuedRequests").Int(s.num_queued_requests);
  writer.Key("pinnedMemUsage").Int(s.pinned_memory_bytes);
  writer.Key("staticBatchingStats");
  if (is_static) {
    WriteStatic(iteration, writer);
  } else {
    writer.Null();
  }
  writer.Key("timestamp").String(TimestampText(iteration.timestamp_us, /*with_microseconds=*/true));
  writer.EndObject();
  return line;
}

}  // namespace inflight::serving

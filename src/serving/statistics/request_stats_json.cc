// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/request_stats_json.h"

#include "json/json_writer.h"
#include "serving/statistics/iteration_stats_json.h"

namespace inflight::serving {
namespace {

// In single precision, as upstream has it.
float HitRate(const RequestStats& stats) {
  return static_cast<float>(CacheHitRate(stats.kv_blocks_reused, stats.kv_blocks_missed));
}

void Write(const RequestStats& stats, json::Writer& writer) {
  writer.BeginObject();
  writer.Key("allocNewBlocksPerRequest").Int(stats.kv_blocks_alloc_new);
  writer.Key("allocTotalBlocksPerRequest").Int(stats.kv_blocks_alloc_total);
  writer.Key("avgNumDecodedTokensPerIter").Double(stats.avg_num_decoded_tokens_per_iter);
  writer.Key("contextPrefillPosition").Int(stats.context_prefill_position);
  writer.Key("disServingStats").Null();
  writer.Key("id").Uint(stats.id);
  writer.Key("kvCacheHitRatePerRequest").Double(HitRate(stats));
  writer.Key("missedBlocksPerRequest").Int(stats.kv_blocks_missed);
  writer.Key("numGeneratedTokens").Int(stats.num_generated_tokens);
  writer.Key("paused").Bool(stats.paused);
  writer.Key("reusedBlocksPerRequest").Int(stats.kv_blocks_reused);
  writer.Key("scheduled").Bool(stats.scheduled);
  writer.Key("sequenceIndex").Int(stats.sequence_index);
  writer.Key("stage").String(RequestStageName(stats.stage));
  writer.EndObject();
}

}  // namespace

std::string RequestStatsJson(const RequestStatsPerIteration& record) {
  std::string line;
  json::Writer writer(line);
  writer.BeginObject().Key("iter").Int(record.iter).Key("requestStats").BeginArray();
  for (const RequestStats& stats : record.requests) Write(stats, writer);
  writer.EndArray().EndObject();
  return line;
}

}  // namespace inflight::serving

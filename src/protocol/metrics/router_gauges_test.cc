// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/router_gauges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "protocol/kserve/http/fake_server.h"
#include "protocol/metrics/metrics_page.h"

namespace inflight::metrics {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

serving::ExecutorGauges Executor(const std::string& version) {
  serving::ExecutorGauges gauges{.model = "llm", .version = version};
  gauges.iteration.block_size = 32;
  gauges.iteration.stats.num_active_requests = 7;
  gauges.iteration.stats.num_paused_requests = 2;
  gauges.iteration.stats.num_queued_requests = 4;
  gauges.iteration.stats.kv_blocks_max = 80;
  gauges.iteration.stats.kv_blocks_used = 20;
  return gauges;
}

std::string Written(const std::vector<serving::ExecutorGauges>& executors,
                    const serving::StatisticsSnapshot* statistics = nullptr) {
  std::vector<RouterModel> models;
  for (const serving::ExecutorGauges& executor : executors) {
    models.push_back({&executor, statistics});
  }
  TextWriter out;
  WriteRouterGauges(models, /*with_reuse=*/true, out);
  return out.Take();
}

TEST(RouterGauges, PausedRequestsWait) {
  const std::string page = Written({Executor("1")});
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"llm\"} 5\n"));
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_waiting{engine=\"0\",model_name=\"llm\"} 6\n"));
  EXPECT_THAT(page, HasSubstr("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llm\"} 0.25\n"));
  EXPECT_THAT(page, HasSubstr("vllm:cache_config_info{block_size=\"32\",engine=\"0\",model_name="
                              "\"llm\",num_gpu_blocks=\"80\"} 1\n"));
}

TEST(RouterGauges, VersionsOfAModelAreEngines) {
  EXPECT_THAT(Written({Executor("1"), Executor("2")}),
              AllOf(HasSubstr("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llm\"}"),
                    HasSubstr("vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"llm\"}")));
}

TEST(RouterGauges, AdaptersAreThoseThatHaveNames) {
  EXPECT_THAT(Written({Executor("1")}), Not(HasSubstr("lora")));
  serving::ExecutorGauges executor = Executor("1");
  executor.adapters = {.names = {"new", "a,b", "old"}, .max = 9};
  EXPECT_THAT(Written({executor}),
              HasSubstr("vllm:lora_requests_info{engine=\"0\",max_lora=\"9\",model_name=\"llm\","
                        "running_lora_adapters=\"new,old\",waiting_lora_adapters=\"\"} "));
}

TEST(RouterGauges, TokensAreCounted) {
  serving::ExecutorGauges executor = Executor("1");
  executor.stats.prompt_tokens = 30;
  executor.stats.prompt_tokens_cached = 20;
  executor.stats.tokens_generated = 12;
  const std::string page = Written({executor});
  for (const char* line : {"vllm:prompt_tokens_total{engine=\"0\",model_name=\"llm\"} 30\n",
                           "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"llm\"} 30\n",
                           "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"llm\"} 20\n",
                           "vllm:generation_tokens_total{engine=\"0\",model_name=\"llm\"} 12\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(RouterGauges, TimesAreSecondsAndLengthsAreTokens) {
  serving::StatisticsSnapshot statistics;
  statistics.ttft_ms = {.upper_bounds = {50, 1000}, .counts = {1, 2, 3}, .sum = 8500, .count = 6};
  statistics.prompt_tokens = {.upper_bounds = {8}, .counts = {4, 0}, .sum = 20, .count = 4};
  const std::string page = Written({Executor("1")}, &statistics);
  const std::string labels = "{engine=\"0\",model_name=\"llm\"";
  EXPECT_THAT(page, HasSubstr("# TYPE vllm:time_to_first_token_seconds histogram\n"
                              "vllm:time_to_first_token_seconds_bucket" +
                              labels +
                              ",le=\"0.05\"} 1\n"
                              "vllm:time_to_first_token_seconds_bucket" +
                              labels +
                              ",le=\"1\"} 3\n"
                              "vllm:time_to_first_token_seconds_bucket" +
                              labels +
                              ",le=\"+Inf\"} 6\n"
                              "vllm:time_to_first_token_seconds_sum" +
                              labels +
                              "} 8.5\n"
                              "vllm:time_to_first_token_seconds_count" +
                              labels + "} 6\n"));
  EXPECT_THAT(page, HasSubstr("vllm:request_prompt_tokens_sum" + labels + "} 20\n"));
  EXPECT_THAT(page, Not(HasSubstr("vllm:inter_token_latency_seconds_count")));  // not kept
}

TEST(RouterGauges, FinishedRequestsHaveTheReasonsOfVllm) {
  serving::ModelStatistics statistics;
  for (const FinishReason reason : {FinishReason::kEndId, FinishReason::kStopWords,
                                    FinishReason::kLength, FinishReason::kCancelled})
    statistics.ObserveFinished({.latency_ns = 1'500'000'000, .reason = reason});
  const serving::StatisticsSnapshot snapshot = statistics.Snapshot();
  const std::string page = Written({Executor("1")}, &snapshot);
  const std::string labels = "{engine=\"0\",finished_reason=";
  EXPECT_THAT(page, HasSubstr("# TYPE vllm:request_success_total counter\n"
                              "vllm:request_success_total" +
                              labels +
                              "\"abort\",model_name=\"llm\"} 1\n"
                              "vllm:request_success_total" +
                              labels +
                              "\"length\",model_name=\"llm\"} 1\n"
                              "vllm:request_success_total" +
                              labels + "\"stop\",model_name=\"llm\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("vllm:e2e_request_latency_seconds_sum{engine=\"0\",model_name="
                              "\"llm\"} 6\n"));
}

TEST(RouterGauges, ThePageHasThemWhereItIsAsked) {
  kserve_http::FakeServer server;
  server.gauges = {Executor("1")};
  EXPECT_THAT(MetricsPage(server), Not(HasSubstr("vllm:")));
  EXPECT_THAT(MetricsPage(server, {.with_vllm_names = true}),
              HasSubstr("vllm:num_requests_running"));
  EXPECT_EQ(Written({}), "");
}

}  // namespace
}  // namespace inflight::metrics

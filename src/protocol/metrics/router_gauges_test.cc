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

std::string Written(const std::vector<serving::ExecutorGauges>& executors) {
  TextWriter out;
  WriteRouterGauges(executors, out);
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

// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/load_report.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "protocol/http_listener/test_client.h"
#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"
#include "protocol/kserve/http/http_server.h"

namespace inflight::kserve_http {
namespace {

using http_listener::Headers;
using http_listener::Post;
using http_listener::RoundTrip;
using http_listener::TestResponse;

constexpr char kName[] = "endpoint-load-metrics";

serving::ExecutorGauges Executor(int64_t used, int64_t max, int block_size,
                                 bool is_static_batch = false) {
  serving::ExecutorGauges gauges{
      .model = "llm", .version = "1", .profile = {.is_static_batch = is_static_batch}};
  gauges.iteration.block_size = block_size;
  gauges.iteration.stats.kv_blocks_used = used;
  gauges.iteration.stats.kv_blocks_max = max;
  return gauges;
}

std::string ReportOf(const FakeServer& server, LoadReport report) {
  Headers headers;
  AddLoadReport(server, report, headers);
  if (headers.empty()) return "";
  EXPECT_EQ(headers.size(), 1U);
  EXPECT_EQ(headers.front().first, kName);
  return headers.front().second;
}

// 30 of 120 blocks of 64 tokens.
TEST(LoadReportTest, IsUsedOverMaxAndTheTokensThatFit) {
  FakeServer server;
  for (const bool is_static_batch : {false, true}) {
    server.gauges = {Executor(30, 120, 64, is_static_batch)};
    EXPECT_EQ(ReportOf(server, LoadReport::kText),
              "TEXT named_metrics.kv_cache_utilization=0.25, "
              "named_metrics.max_token_capacity=7680");
    EXPECT_EQ(ReportOf(server, LoadReport::kJson),
              R"(JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":7680}})");
  }
}

// 30 and 20 of 120 and 80 blocks; 120 * 64 + 80 * 32 tokens.
TEST(LoadReportTest, IsThatOfAllExecutorsTogether) {
  FakeServer server;
  server.gauges = {Executor(30, 120, 64), Executor(20, 80, 32)};
  EXPECT_EQ(ReportOf(server, LoadReport::kText),
            "TEXT named_metrics.kv_cache_utilization=0.25, "
            "named_metrics.max_token_capacity=10240");
}

TEST(LoadReportTest, IsAbsentWithoutAKvCache) {
  FakeServer server;
  EXPECT_EQ(ReportOf(server, LoadReport::kText), "");
  server.gauges = {Executor(0, 0, 64)};
  EXPECT_EQ(ReportOf(server, LoadReport::kJson), "");
}

TEST(LoadReportTest, FormatsAreTextAndJson) {
  const auto asked = [](Headers headers) {
    return AskedLoadReport({.method = "POST", .target = "/", .headers = std::move(headers)});
  };
  EXPECT_EQ(asked({{"Endpoint-Load-Metrics-Format", "text"}}), LoadReport::kText);
  EXPECT_EQ(asked({{"endpoint-load-metrics-format", "json"}}), LoadReport::kJson);
  for (const char* other : {"", "JSON", "binary"}) {
    EXPECT_EQ(asked({{"endpoint-load-metrics-format", other}}), std::nullopt) << other;
  }
  EXPECT_EQ(asked({}), std::nullopt);
}

TEST(LoadReportTest, GoesOutWithAnswersOfBothGenerateEndpointsAlone) {
  FakeServer fake;
  fake.gauges = {Executor(30, 120, 64)};
  fake.Add(R"(name: "words" model_transaction_policy { decoupled: true }
              input { name: "text_input" data_type: TYPE_STRING dims: 1 }
              input { name: "stream" data_type: TYPE_BOOL dims: 1 optional: true }
              output { name: "text_output" data_type: TYPE_STRING dims: 1 })",
           Words);
  HttpOptions options;
  options.listener.address = "127.0.0.1";
  options.listener.port = 0;
  const auto server = HttpServer::Start(fake, options);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const auto header = [&](const std::string& endpoint, const std::string& body,
                          const std::string& asked) {
    const TestResponse response =
        RoundTrip((*server)->port(), Post("/v2/models/words/" + endpoint, body, asked));
    EXPECT_NE(response.status, 0);
    return response.Header(kName);
  };
  const std::string text = R"({"text_input":"a b"})";
  const std::string asked = "endpoint-load-metrics-format: text\r\n";
  for (const char* endpoint : {"generate", "generate_stream"}) {
    EXPECT_TRUE(header(endpoint, text, asked).starts_with("TEXT ")) << endpoint;
    EXPECT_EQ(header(endpoint, text, ""), "") << endpoint;
    EXPECT_EQ(header(endpoint, text, "endpoint-load-metrics-format: xml\r\n"), "") << endpoint;
    EXPECT_EQ(header(endpoint, R"({"text_input":1})", asked), "") << endpoint;
  }
  const std::string tensors =
      R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":["a"]}]})";
  EXPECT_EQ(header("infer", tensors, asked), "");
}

}  // namespace
}  // namespace inflight::kserve_http

// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string NoVariables(const char*) { return {}; }

std::string SomeVariables(const char* name) {
  const std::string variable = name;
  if (variable == "OTEL_BSP_MAX_QUEUE_SIZE") return "100";
  if (variable == "OTEL_BSP_SCHEDULE_DELAY") return "7";
  if (variable == "OTEL_RESOURCE_ATTRIBUTES") return "a=1,b=x=y";
  return {};
}

TraceConfig Parse(const std::vector<std::string>& words, Environment environment = NoVariables) {
  const auto config = ParseTraceConfig(words, environment);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : TraceConfig();
}

TEST(TraceConfigTest, NothingSaidIsOffInModeTriton) {
  const TraceConfig config = Parse({});
  EXPECT_FALSE(config.start.levels.any());
  EXPECT_EQ(config.start.rate, 1000u);
  EXPECT_EQ(config.start.count, -1);
  EXPECT_EQ(config.start.log_frequency, 0u);
  EXPECT_FALSE(config.is_opentelemetry);
  EXPECT_EQ(config.opentelemetry.url, "http://localhost:4318/v1/traces");
  EXPECT_EQ(config.opentelemetry.max_queue_size, 2048);
  EXPECT_EQ(config.opentelemetry.schedule_delay_ms, 5000);
  EXPECT_EQ(config.opentelemetry.max_export_batch_size, 512);
}

TEST(TraceConfigTest, SettingsOfTriton) {
  const TraceConfig config =
      Parse({"level=TIMESTAMPS", "level=TENSORS", "rate=3", "count=7", "mode=triton",
             "triton,file=/tmp/a,b=c.json", "triton,log-frequency=50"});
  EXPECT_TRUE(config.start.levels.timestamps && config.start.levels.tensors);
  EXPECT_EQ(config.start.rate, 3u);
  EXPECT_EQ(config.start.count, 7);
  EXPECT_EQ(config.start.log_frequency, 50u);
  EXPECT_EQ(config.file, "/tmp/a,b=c.json");
}

TEST(TraceConfigTest, FormerLevelsAreTimestamps) {
  for (const char* word : {"level=MIN", "level=MAX"}) {
    EXPECT_TRUE(Parse({word}).start.levels.timestamps) << word;
    EXPECT_FALSE(Parse({word}).start.levels.tensors) << word;
  }
}

TEST(TraceConfigTest, SettingsOfOpenTelemetryWinOverTheEnvironment) {
  const TraceConfig config =
      Parse({"mode=opentelemetry", "opentelemetry,url=http://c:1/x", "opentelemetry,resource=k=v=w",
             "opentelemetry,bsp_schedule_delay=9"},
            SomeVariables);
  EXPECT_TRUE(config.is_opentelemetry);
  EXPECT_EQ(config.opentelemetry.url, "http://c:1/x");
  EXPECT_EQ(config.opentelemetry.max_queue_size, 100);
  EXPECT_EQ(config.opentelemetry.schedule_delay_ms, 9);
  EXPECT_EQ(config.opentelemetry.max_export_batch_size, 100);  // never above the queue
  EXPECT_THAT(config.opentelemetry.resource,
              ElementsAre(Pair("service.name", "triton-inference-server"), Pair("a", "1"),
                          Pair("b", "x=y"), Pair("k", "v=w")));
}

TEST(TraceConfigTest, ACollectorMayBeGivenWithoutItsScheme) {
  const TraceConfig config = Parse({"opentelemetry,url=localhost:4318/v1/traces"});
  EXPECT_EQ(config.opentelemetry.url, "http://localhost:4318/v1/traces");
}

TEST(TraceConfigTest, FaultyWordsAreNamed) {
  for (const char* word : {"level", "level=HIGH", "rate=-1", "rate=x", "rate=4294967296",
                           "count=-2", "mode=json", "triton,path=x", "triton,log-frequency=1.5",
                           "opentelemetry,url=https://c/x", "opentelemetry,resource=k",
                           "opentelemetry,bsp_max_queue_size=0", "zipkin,url=x", "colour=red"}) {
    const auto config = ParseTraceConfig({word}, NoVariables);
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << word;
    EXPECT_THAT(config.status().message(), HasSubstr(std::string("got '") + word + "'"));
  }
}

}  // namespace
}  // namespace inflight::serving

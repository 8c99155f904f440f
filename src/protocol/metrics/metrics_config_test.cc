// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/metrics_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MetricsConfigTest, NothingSaidIsCountersAlone) {
  const auto config = ParseMetricsConfig({});
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->counter_latencies);
  const auto kept = StatisticsFor(*config);
  EXPECT_TRUE(kept.first_response_ms.empty() && kept.quantiles.empty());
}

TEST(MetricsConfigTest, SwitchesInAnyCaseAndLaterWordsWin) {
  const auto config = ParseMetricsConfig({"counter_latencies=FALSE", "histogram_latencies=1",
                                          "summary_latencies=false", "summary_latencies=On"});
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->counter_latencies);
  const auto kept = StatisticsFor(*config);
  EXPECT_THAT(kept.first_response_ms, ElementsAre(100, 500, 2000, 5000));
  EXPECT_EQ(kept.quantiles.size(), 5u);
}

TEST(MetricsConfigTest, QuantilesReplaceTheDefaults) {
  const auto config = ParseMetricsConfig({"summary_quantiles=0.5:0.05,0.75:0.001"});
  ASSERT_TRUE(config.ok());
  ASSERT_EQ(config->summary_quantiles.size(), 2u);
  EXPECT_EQ(config->summary_quantiles[1].quantile, 0.75);
  EXPECT_EQ(config->summary_quantiles[1].error, 0.001);
}

TEST(MetricsConfigTest, FaultyWordsAreNamed) {
  for (const char* word : {"", "summary", "summary_latencies", "summary_latencies=yes",
                           "summary_quantiles=", "summary_quantiles=0.5",
                           "summary_quantiles=0.5:", "summary_quantiles=1:0.1",
                           "summary_quantiles=0.5:0.1,", "summary_quantiles=0.5:0.1;0.6:0.1"}) {
    const auto config = ParseMetricsConfig({word});
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << word;
    EXPECT_THAT(config.status().message(), HasSubstr(std::string("got '") + word + "'"));
  }
}

}  // namespace
}  // namespace inflight::metrics

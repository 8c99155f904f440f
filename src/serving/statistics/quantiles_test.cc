// SPDX-License-Identifier: Apache-2.0
#include "serving/statistics/quantiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace inflight::serving {
namespace {

// The defaults of --metrics-config.
const std::vector<Quantile> kTargets = {
    {0.5, 0.05}, {0.9, 0.01}, {0.95, 0.001}, {0.99, 0.001}, {0.999, 0.001}};
constexpr int64_t kSecondNs = 1'000'000'000;

// Of the values 1..n the rank of a value is the value.
void ExpectRanksWithinErrors(std::vector<double> values) {
  const auto n = static_cast<double>(values.size());
  QuantileSketch sketch(kTargets);
  for (const double value : values) sketch.Insert(value);
  for (const auto& [quantile, error] : kTargets) {
    EXPECT_NEAR(sketch.Get(quantile), quantile * n, error * n + 1) << quantile;
  }
  EXPECT_LT(sketch.num_items(), values.size() / 10);
}

std::vector<double> OneTo(size_t n) {
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(QuantileSketchTest, RanksAreWithinTheErrorsWhateverTheOrder) {
  std::vector<double> values = OneTo(50000);
  ExpectRanksWithinErrors(values);
  std::reverse(values.begin(), values.end());
  ExpectRanksWithinErrors(values);
  std::shuffle(values.begin(), values.end(), std::mt19937(7));
  ExpectRanksWithinErrors(values);
}

TEST(QuantileSketchTest, FewValuesAndNone) {
  QuantileSketch sketch(kTargets);
  EXPECT_TRUE(std::isnan(sketch.Get(0.5)));
  sketch.Insert(3);
  EXPECT_EQ(sketch.Get(0.5), 3);
  EXPECT_EQ(sketch.Get(0.999), 3);
  sketch.Reset();
  EXPECT_TRUE(std::isnan(sketch.Get(0.5)));
}

TEST(QuantileSketchTest, EqualValuesAreTheirOwnQuantiles) {
  QuantileSketch sketch(kTargets);
  for (int i = 0; i < 5000; ++i) sketch.Insert(4);
  EXPECT_EQ(sketch.Get(0.5), 4);
  EXPECT_EQ(sketch.Get(0.99), 4);
}

TEST(WindowSummaryTest, QuantilesForgetAfterAMinuteSumsDoNot) {
  WindowSummary summary({{0.5, 0.01}});
  summary.Observe(10, kSecondNs);
  EXPECT_EQ(summary.Snapshot(40 * kSecondNs).values.front(), 10);
  const SummarySnapshot later = summary.Snapshot(62 * kSecondNs);
  EXPECT_TRUE(std::isnan(later.values.front()));
  EXPECT_EQ(later.sum, 10);
  EXPECT_EQ(later.count, 1u);
}

TEST(WindowSummaryTest, NewValuesTakeTheWindowOver) {
  WindowSummary summary({{0.5, 0.01}});
  for (int i = 0; i < 100; ++i) summary.Observe(1, kSecondNs);
  for (int i = 0; i < 10; ++i) summary.Observe(5, 50 * kSecondNs);
  EXPECT_EQ(summary.Snapshot(51 * kSecondNs).values.front(), 1);
  EXPECT_EQ(summary.Snapshot(65 * kSecondNs).values.front(), 5);
}

}  // namespace
}  // namespace inflight::serving

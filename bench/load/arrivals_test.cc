// SPDX-License-Identifier: Apache-2.0
#include "bench/load/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace inflight::bench {
namespace {

TEST(DueTimesTest, GapsAreMinusTheLogarithmOfTheGeneratorsNumbersOverTheRate) {
  // The first number of mt19937_64 under its default seed is 14514284786278117030, 0.786820954868
  // of 2^64; - ln of it is 0.239754.
  const std::vector<int64_t> due = DueTimes(/*request_rate=*/10, /*seed=*/5489, 2);
  EXPECT_EQ(due[0], 0);
  EXPECT_NEAR(static_cast<double>(due[1]), 0.0239754e9, 1e3);
}

TEST(DueTimesTest, ASeedNamesTheArrivals) {
  EXPECT_EQ(DueTimes(7, 1, 50), DueTimes(7, 1, 50));
  EXPECT_NE(DueTimes(7, 1, 50), DueTimes(7, 2, 50));
  EXPECT_EQ(DueTimes(0, 1, 3), std::vector<int64_t>({0, 0, 0}));
}

// Kolmogorov-Smirnov: the largest distance between the gaps' distribution and 1 - e^(-rate t) stays
// below 1.63 / sqrt(n), which true exponentials exceed once in a hundred seeds.
TEST(DueTimesTest, GapsAreExponential) {
  constexpr double kRate = 200;
  constexpr size_t kCount = 20001;
  const std::vector<int64_t> due = DueTimes(kRate, 5, kCount);
  std::vector<double> gaps_s;
  for (size_t i = 1; i < kCount; ++i) {
    ASSERT_GE(due[i], due[i - 1]);
    gaps_s.push_back(static_cast<double>(due[i] - due[i - 1]) * 1e-9);
  }
  std::sort(gaps_s.begin(), gaps_s.end());
  const auto n = static_cast<double>(gaps_s.size());
  double largest = 0;
  for (size_t i = 0; i < gaps_s.size(); ++i) {
    const double expected = 1 - std::exp(-kRate * gaps_s[i]);
    largest = std::max(largest, std::abs(expected - static_cast<double>(i + 1) / n));
  }
  EXPECT_LT(largest, 1.63 / std::sqrt(n));
}

}  // namespace
}  // namespace inflight::bench

// SPDX-License-Identifier: Apache-2.0
#include "base/log_budget.h"

#include <gtest/gtest.h>

namespace inflight::logging {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(LogBudget, APlaceHasABurstAndThenSoManyASecond) {
  LogBudget budget;
  int taken = 0;
  for (int i = 0; i < 100'000; ++i) taken += budget.Take("a.cc", 7, 5 * kSecond) ? 1 : 0;
  EXPECT_EQ(taken, 500);
  EXPECT_TRUE(budget.Take("a.cc", 8, 5 * kSecond));  // another place
  EXPECT_TRUE(budget.Take("b.cc", 7, 5 * kSecond));
  taken = 0;
  for (int64_t ms = 0; ms < 10'000; ++ms) {
    taken += budget.Take("a.cc", 7, 5 * kSecond + ms * 1'000'000) ? 1 : 0;
  }
  EXPECT_NEAR(taken, 100, 1);
}

TEST(LogBudget, WhatIsLeftOutIsCountedOnceASecond) {
  LogBudget budget;
  for (int i = 0; i < 600; ++i) budget.Take("a.cc", 7, 0);
  EXPECT_TRUE(budget.TakeLeftOut(kSecond / 2).empty());
  const auto left_out = budget.TakeLeftOut(kSecond);
  ASSERT_EQ(left_out.size(), 1U);
  EXPECT_EQ(left_out[0].file, "a.cc");
  EXPECT_EQ(left_out[0].line, 7U);
  EXPECT_EQ(left_out[0].count, 100U);
  EXPECT_TRUE(budget.TakeLeftOut(2 * kSecond).empty());
}

}  // namespace
}  // namespace inflight::logging

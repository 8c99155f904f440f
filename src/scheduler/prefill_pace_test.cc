// SPDX-License-Identifier: Apache-2.0
#include "scheduler/prefill_pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace inflight::scheduler {
namespace {

TEST(PrefillPaceTest, BeginsWithOneBlockAndLearnsTheCostOfAToken) {
  PrefillPace pace(/*goal_ns=*/1'000'000, /*max_num_tokens=*/4096);
  EXPECT_EQ(pace.share().alone, 1);  // the scheduler makes a block of it
  pace.Observe(640'000, 0, 64);      // 10 us a token
  EXPECT_EQ(pace.share().alone, 100);
  EXPECT_EQ(pace.share().beside_decode, 100) << "no decode step was seen";
}

TEST(PrefillPaceTest, DecodeRowsTakeTheirTimeFirst) {
  PrefillPace pace(1'000'000, 4096);
  pace.Observe(400'000, 8, 0);
  pace.Observe(400'000 + 640'000, 8, 64);
  EXPECT_EQ(pace.share().beside_decode, 60);
  EXPECT_EQ(pace.share().alone, 100);
}

TEST(PrefillPaceTest, NeverExceedsTheHardLimitAndNeverStops) {
  PrefillPace fast(1'000'000'000, 512);
  fast.Observe(100, 0, 64);
  EXPECT_EQ(fast.share().alone, 512);
  PrefillPace slow(1'000, 512);
  slow.Observe(1'000'000, 4, 0);
  slow.Observe(2'000'000, 4, 64);
  EXPECT_EQ(slow.share().beside_decode, 1);
  EXPECT_EQ(PrefillPace(0, 512).share().alone, 512) << "no goal";
}

// Weights of a second are copied in every step, behind which 4,000 tokens can be computed.
TEST(PrefillPaceTest, WhatEveryStepTakesIsNotCounted) {
  constexpr int64_t kLeastNs = 1'000'000'000;
  PrefillPace pace(/*goal_ns=*/100'000'000, /*max_num_tokens=*/16384, kLeastNs);
  PrefillPace without(/*goal_ns=*/100'000'000, 16384);
  int tokens = 64;
  for (int i = 0; i < 20; ++i) {
    const int64_t ns = std::max<int64_t>(kLeastNs, tokens * kLeastNs / 4000);
    pace.Observe(ns, 0, tokens);
    without.Observe(ns, 0, tokens);
    tokens = pace.share().alone;
  }
  EXPECT_GT(tokens, 4000);
  EXPECT_LT(without.share().alone, 500) << "a goal below the least time is no use";
}

TEST(PrefillPaceTest, StepTimeSettlesAtTheGoal) {
  PrefillPace pace(/*goal_ns=*/10'000'000, 4096);
  // A device of 2 ms a step and 20 us a prompt token.
  int64_t step_ns = 0;
  for (int i = 0; i < 50; ++i) {
    const int tokens = std::max(64, pace.share().alone);
    step_ns = 2'000'000 + 20'000 * tokens;
    pace.Observe(step_ns, 0, tokens);
  }
  EXPECT_NEAR(static_cast<double>(step_ns), 10e6, 0.2e6);
}

}  // namespace
}  // namespace inflight::scheduler

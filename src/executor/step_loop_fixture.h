// SPDX-License-Identifier: Apache-2.0
// For tests: the step loop over a fake device of depth 1 to 3 that distrusts every plan.
#pragma once

#include <gtest/gtest.h>

#include "simulation/loop_harness.h"

namespace inflight::executor {

class StepLoopTest : public ::testing::TestWithParam<int> {
 protected:
  int depth() const { return GetParam(); }

  testing::HarnessOptions Small() const {
    testing::HarnessOptions options;
    options.backend.info = testing::SmallInfo(depth());
    return options;
  }

  static void ExpectWhole(const testing::LoopHarness& harness, const Request& request,
                          const testing::RecordingSink& sink) {
    const auto expected = testing::ExpectedOutput(request, 97);
    EXPECT_EQ(harness.backend.violation(), "");
    EXPECT_EQ(sink.num_final, 1);
    ASSERT_TRUE(sink.is_done());
    EXPECT_TRUE(sink.last().is_final);
    EXPECT_EQ(sink.last().status, Status::Ok());
    EXPECT_EQ(sink.last().finish_reason, expected.reason);
    EXPECT_EQ(sink.ids, expected.ids);
  }
};

}  // namespace inflight::executor

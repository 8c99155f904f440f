// SPDX-License-Identifier: Apache-2.0
#include "decoding/best_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace inflight::decoding {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Best(const std::vector<float>& logits, int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count), -1);
  BestTokens(logits.data(), static_cast<int>(logits.size()), count, ids.data());
  return ids;
}

TEST(BestTokensTest, TheBestFirstAndOfEqualOnesTheLowerId) {
  const std::vector<float> logits = {1, 3, -2, 3, 0.5F, 3, 7, 1};
  EXPECT_THAT(Best(logits, 0), ElementsAre());
  EXPECT_THAT(Best(logits, 1), ElementsAre(6));
  EXPECT_THAT(Best(logits, 3), ElementsAre(6, 1, 3));
  EXPECT_THAT(Best(logits, 8), ElementsAre(6, 1, 3, 5, 0, 7, 4, 2));
}

TEST(BestTokensTest, WhatIsNoNumberOrBannedIsChosenByNobody) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(Best({NAN, kNone, 2, kNone, NAN}, 1), ElementsAre(2));
  EXPECT_THAT(Best({NAN, kNone, 2, kNone, NAN}, 3), ElementsAre(2, 0, 0));
}

}  // namespace
}  // namespace inflight::decoding

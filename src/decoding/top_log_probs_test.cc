// SPDX-License-Identifier: Apache-2.0
#include "decoding/top_log_probs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace inflight::decoding {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<TokenId> Ids(const std::vector<TopLogProb>& top) {
  std::vector<TokenId> ids;
  for (const TopLogProb& entry : top) ids.push_back(entry.id);
  return ids;
}

TEST(TopLogProbsTest, ByHand) {
  // Of weights 1, 4, 2, 1 (sum 8).
  const std::vector<float> logits = {0, std::log(4.0F), std::log(2.0F), 0};
  const auto top = TopLogProbs(logits, 3);
  EXPECT_THAT(Ids(top), testing::ElementsAre(1, 2, 0));
  EXPECT_NEAR(std::exp(top[0].log_prob), 0.5, 1e-6);
  EXPECT_NEAR(std::exp(top[1].log_prob), 0.25, 1e-6);
  EXPECT_NEAR(std::exp(top[2].log_prob), 0.125, 1e-6);
}

TEST(TopLogProbsTest, TiesGoToTheLowerIdAlsoWhereTheyDoNotAllFit) {
  EXPECT_THAT(Ids(TopLogProbs(std::vector<float>(9, 1.0F), 4)), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Ids(TopLogProbs(std::vector<float>{1, 2, 1, 2, 1}, 3)),
              testing::ElementsAre(1, 3, 0));
}

TEST(TopLogProbsTest, WhatIsBannedComesLastAndHasNoProbability) {
  const auto top = TopLogProbs(std::vector<float>{kBanned, 3, kNan, 3}, 4);
  EXPECT_THAT(Ids(top), testing::ElementsAre(1, 3, 0, 2));
  EXPECT_NEAR(top[0].log_prob, std::log(0.5), 1e-6);
  EXPECT_EQ(top[2].log_prob, kBanned);
  EXPECT_EQ(top[3].log_prob, kBanned);
}

TEST(TopLogProbsTest, ARowWithoutADistributionHasNone) {
  const auto top = TopLogProbs(std::vector<float>(5, kBanned), 2);
  EXPECT_THAT(Ids(top), testing::ElementsAre(0, 1));
  EXPECT_EQ(top[0].log_prob, kBanned);
}

TEST(TopLogProbsTest, NoneAndAll) {
  EXPECT_TRUE(TopLogProbs(std::vector<float>{1, 2}, 0).empty());
  EXPECT_THAT(Ids(TopLogProbs(std::vector<float>{1, 2}, 2)), testing::ElementsAre(1, 0));
}

TEST(TopLogProbsTest, EqualsASortedLogSoftmaxInFloat64) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 4);
  for (const int vocab_size : {1, 17, 300, 5000}) {
    std::vector<float> logits(static_cast<size_t>(vocab_size));
    for (float& x : logits) x = normal(random);
    std::vector<TokenId> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    const int count = std::min(vocab_size, kMaxTopLogProbs);
    const auto top = TopLogProbs(logits, count);
    ASSERT_EQ(std::ssize(top), count);
    for (size_t i = 0; i < top.size(); ++i) {
      ASSERT_EQ(top[i].id, order[i]) << "place " << i << " of " << vocab_size;
      EXPECT_NEAR(top[i].log_prob, logits[static_cast<size_t>(order[i])] - std::log(sum), 1e-5);
    }
  }
}

}  // namespace
}  // namespace inflight::decoding

// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/reasoning_budget.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace inflight::serving {
namespace {

// 0 to 5; 40 tokens in all.
const std::array<std::string, 6> kTexts = {"a", "<think>", "</th", "ink>", " ", "b"};
constexpr int kVocab = 40;

std::shared_ptr<const Guide> MakeBudget(int max_tokens, bool has_begun) {
  return GuideByBudget(
      {.max_tokens = max_tokens,
       .begin = "<think>",
       .end = "</think>",
       .end_ids = {2, 3},
       .has_begun = has_begun},
      kVocab, [](TokenId id) { return kTexts[static_cast<size_t>(id)]; }, nullptr);
}

// What may come: all of them, or the one; -2: neither.
constexpr int kAll = -1;
int MayCome(GuideState& state) {
  std::array<uint32_t, 2> mask = {1, 2};
  EXPECT_TRUE(state.Mask(mask));
  if (mask[0] == UINT32_MAX && mask[1] == 0xFF) return kAll;
  for (int id = 0; id < kVocab; ++id)
    if (mask == std::array<uint32_t, 2>{id < 32 ? 1U << id : 0, id < 32 ? 0 : 1U << (id - 32)})
      return id;
  return -2;
}

// What may come behind each token, from before the first on.
std::vector<int> Along(const Guide& guide, const std::vector<TokenId>& tokens) {
  const auto state = guide.Begin();
  std::vector<int> seen = {MayCome(*state)};
  for (const TokenId token : tokens) {
    EXPECT_TRUE(state->Accept(token)) << token;
    seen.push_back(MayCome(*state));
    EXPECT_EQ(state->CanEnd(), seen.back() == kAll);
  }
  return seen;
}

TEST(ReasoningBudget, TheEndIsForcedWhereItIsUsedUp) {
  EXPECT_EQ(Along(*MakeBudget(2, false), {4, 1, 0, 5, 2, 3, 0, 0, 0}),
            (std::vector<int>{kAll, kAll, kAll, kAll, 2, 3, kAll, kAll, kAll, kAll}));
  EXPECT_EQ(Along(*MakeBudget(1, true), {0, 2, 3, 1}), (std::vector<int>{kAll, 2, 3, kAll, kAll}));
  EXPECT_EQ(Along(*MakeBudget(0, true), {2, 3, 0}), (std::vector<int>{2, 3, kAll, kAll}));
}

TEST(ReasoningBudget, WhatEndsByItselfIsFree) {
  EXPECT_EQ(Along(*MakeBudget(3, true), {0, 2, 3, 0, 0, 0}), std::vector<int>(7, kAll));
  EXPECT_EQ(Along(*MakeBudget(1, false), {0, 1, 0, 0, 0}), std::vector<int>(6, kAll))
      << "it does not reason first";
}

// 0 to 4: of an answer in messages.
std::shared_ptr<const Guide> MakeBudgetOfMessages(int max_tokens) {
  static const std::array<std::string, 5> texts = {"a", "<m>", "<end>", "<next>", "<last>"};
  return GuideByBudget(
      {.max_tokens = max_tokens,
       .begin = "<m>",
       .end = "<end>",
       .end_ids = {2, 3},
       .begin_again = "<next><m>",
       .end_again_ids = {2, 3, 4}},
      kVocab, [](TokenId id) { return texts[static_cast<size_t>(id)]; }, nullptr);
}

TEST(ReasoningBudget, WhatFollowsAMessageOfReasoningIsNone) {
  EXPECT_EQ(Along(*MakeBudgetOfMessages(2), {1, 0, 2, 3, 4, 0, 0, 0}), std::vector<int>(9, kAll));
  EXPECT_EQ(Along(*MakeBudgetOfMessages(1), {1, 0, 2, 3, 4, 0}),
            (std::vector<int>{kAll, kAll, 2, 3, kAll, kAll, kAll}));
}

TEST(ReasoningBudget, MessagesOfReasoningShareItsTokens) {
  EXPECT_EQ(Along(*MakeBudgetOfMessages(2), {1, 0, 2, 3, 1, 2, 3, 1, 2, 3, 4, 0}),
            (std::vector<int>{kAll, kAll, kAll, kAll, kAll, 2, 3, kAll, 2, 3, 4, kAll, kAll}))
      << "one that goes on all the same is led to the last message";
}

TEST(ReasoningBudget, AnotherTokenThanTheForcedOneIsRefused) {
  const auto guide = MakeBudget(0, true);
  const auto state = guide->Begin();
  EXPECT_FALSE(state->Accept(0));
  const auto fork = state->Clone();
  EXPECT_TRUE(state->Accept(2));
  EXPECT_EQ(MayCome(*state), 3);
  EXPECT_EQ(MayCome(*fork), 2) << "a fork goes its own way";
}

}  // namespace
}  // namespace inflight::serving

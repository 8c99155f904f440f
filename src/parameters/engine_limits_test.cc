// SPDX-License-Identifier: Apache-2.0
#include "parameters/engine_limits.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace inflight::parameters {
namespace {

constexpr ExecutorLimits kLimits = {.vocab_size = 100, .max_seq_len = 16, .max_input_len = 10};

TEST(EngineLimits, TheLongestPromptIsTheLimit) {
  EXPECT_FALSE(IsPromptTooLong(kLimits, {.input_ids = std::vector<TokenId>(10, 1)}));
  EXPECT_TRUE(IsPromptTooLong(kLimits, {.input_ids = std::vector<TokenId>(11, 1)}));
}

TEST(EngineLimits, TheFirstIdOutsideTheVocabularyIsFound) {
  EXPECT_EQ(FindOutsideVocabulary(kLimits, std::vector<TokenId>{0, 99}), std::nullopt);
  EXPECT_EQ(FindOutsideVocabulary(kLimits, std::vector<TokenId>{}), std::nullopt);
  EXPECT_EQ(FindOutsideVocabulary(kLimits, std::vector<TokenId>{5, 100, -1}), 1U);
  EXPECT_EQ(FindOutsideVocabulary(kLimits, std::vector<TokenId>{5, -1, 100}), 1U);
  EXPECT_EQ(FindOutsideVocabulary(kLimits, std::vector<TokenId>{5, -1, 100}, -1), 2U);
}

TEST(EngineLimits, MaxTokensIsShortenedToWhatThePromptLeaves) {
  Request request{.input_ids = {1, 2, 3}, .max_tokens = std::numeric_limits<int>::max()};
  EXPECT_TRUE(ShortenToSequence(kLimits, request));
  EXPECT_EQ(request.max_tokens, 13);
  EXPECT_FALSE(ShortenToSequence(kLimits, request));
}

}  // namespace
}  // namespace inflight::parameters

// SPDX-License-Identifier: Apache-2.0
#include "decoding/ngram_drafts.h"

#include <gtest/gtest.h>

namespace inflight::decoding {
namespace {

std::vector<TokenId> Drafts(const std::vector<TokenId>& tokens, int max_drafts) {
  std::vector<TokenId> drafts = {99};  // of an earlier call
  DraftByLookup(tokens, max_drafts, &drafts);
  return drafts;
}

using Ids = std::vector<TokenId>;

TEST(NgramDraftsTest, WhatFollowedTheSameTokensIsProposed) {
  EXPECT_EQ(Drafts({1, 2, 3, 4, 5, 6, 1, 2}, 3), (Ids{3, 4, 5}));
  EXPECT_EQ(Drafts({1, 2, 3, 4, 5, 6, 1, 2}, 1), (Ids{3}));
}

TEST(NgramDraftsTest, OneTokenAloneIsNoMatch) {
  EXPECT_EQ(Drafts({1, 2, 3, 4, 1}, 3), Ids{});
  EXPECT_EQ(Drafts({1, 2, 3, 4}, 3), Ids{});
  EXPECT_EQ(Drafts({1}, 3), Ids{});
  EXPECT_EQ(Drafts({}, 3), Ids{});
  EXPECT_EQ(Drafts({1, 2, 1, 2}, 0), Ids{});
}

TEST(NgramDraftsTest, TheLongestMatchWinsOverNewerOnes) {
  EXPECT_EQ(Drafts({7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2}, 1), (Ids{30}));
}

TEST(NgramDraftsTest, OfMatchesAsLongTheNewestCounts) {
  EXPECT_EQ(Drafts({1, 2, 30, 9, 1, 2, 40, 8, 1, 2}, 1), (Ids{40}));
  // Beyond the longest match nothing is compared.
  EXPECT_EQ(Drafts({5, 1, 2, 3, 4, 30, 6, 1, 2, 3, 4, 40, 5, 1, 2, 3, 4}, 1), (Ids{40}));
}

TEST(NgramDraftsTest, APeriodGoesOn) {
  EXPECT_EQ(Drafts({1, 2, 3, 1, 2, 3, 1, 2}, 7), (Ids{3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(Drafts({4, 4, 4}, 3), (Ids{4, 4, 4}));
}

}  // namespace
}  // namespace inflight::decoding

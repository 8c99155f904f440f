// SPDX-License-Identifier: Apache-2.0
#include "decoding/suffix_drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace inflight::decoding {
namespace {

using Ids = std::vector<TokenId>;

Ids Suffixes(const SuffixDrafts& kept, const Ids& tokens, int max_drafts) {
  Ids drafts = {99};  // of an earlier call
  kept.Draft(tokens, max_drafts, &drafts);
  return drafts;
}
Ids Suffixes(const Ids& tokens, int max_drafts) {
  return Suffixes(SuffixDrafts(64), tokens, max_drafts);
}

TEST(SuffixDraftsTest, WhatFollowedTheSameTokensIsProposed) {
  EXPECT_EQ(Suffixes({1, 2, 3, 4, 5, 6, 1, 2, 3}, 3), (Ids{4, 5, 6}));
  EXPECT_EQ(Suffixes({1, 2, 3, 4, 5, 6, 1, 2, 3}, 1), (Ids{4}));
  EXPECT_EQ(Suffixes({7, 7, 7, 7}, 3), (Ids{7, 7, 7})) << "a period goes on";
}

TEST(SuffixDraftsTest, FewerThanThreeTokensAreNoMatch) {
  EXPECT_EQ(Suffixes({1, 2, 3, 4, 9, 2, 3}, 3), Ids{});
  EXPECT_EQ(Suffixes({1, 2}, 3), Ids{});
  EXPECT_EQ(Suffixes({}, 3), Ids{});
  EXPECT_EQ(Suffixes({1, 2, 3, 4, 1, 2, 3}, 0), Ids{});
}

TEST(SuffixDraftsTest, TheLongestMatchWinsOverMoreOfShorterOnes) {
  EXPECT_EQ(Suffixes({8, 1, 2, 3, 30, 7, 1, 2, 3, 40, 6, 1, 2, 3, 40, 8, 1, 2, 3}, 1), (Ids{30}));
}

TEST(SuffixDraftsTest, OfMatchesAsLongTheMostFrequentTokenCounts) {
  EXPECT_EQ(Suffixes({1, 2, 3, 40, 5, 1, 2, 3, 40, 6, 1, 2, 3, 30, 9, 1, 2, 3}, 1), (Ids{40}));
  // One of each: the newest.
  EXPECT_EQ(Suffixes({1, 2, 3, 40, 6, 1, 2, 3, 30, 9, 1, 2, 3}, 1), (Ids{30}));
  // Behind 40 only what followed 40 counts.
  EXPECT_EQ(Suffixes({1, 2, 3, 40, 5, 8, 1, 2, 3, 40, 5, 6, 1, 2, 3, 30, 7, 9, 1, 2, 3}, 2),
            (Ids{40, 5}));
}

TEST(SuffixDraftsTest, OutputsThatEndedAreLookedUpToo) {
  SuffixDrafts kept(64);
  kept.Keep(Ids{9, 10, 11, 12, 13, 14});
  EXPECT_EQ(Suffixes(kept, {5, 10, 11, 12}, 5), (Ids{13, 14})) << "as far as the output goes";
  EXPECT_EQ(Suffixes(kept, {5, 11, 12, 10}, 5), Ids{});
  kept.Keep(Ids{10, 11, 12, 20, 21, 22});
  EXPECT_EQ(Suffixes(kept, {5, 10, 11, 12}, 2), (Ids{20, 21})) << "the newest";
  kept.Keep(Ids{10, 11, 12, 13, 30});
  EXPECT_EQ(Suffixes(kept, {5, 10, 11, 12}, 2), (Ids{13, 30}))
      << "the most frequent, then the newest";
  EXPECT_EQ(Suffixes(kept, {9, 10, 11, 12}, 2), (Ids{13, 14})) << "the longest match";
  // The text's own place goes before another.
  SuffixDrafts other(64);
  other.Keep(Ids{10, 11, 12, 60});
  EXPECT_EQ(Suffixes(other, {10, 11, 12, 50, 7, 10, 11, 12}, 1), (Ids{50}));
}

TEST(SuffixDraftsTest, NoMatchReachesOverTheEndOfAnOutput) {
  SuffixDrafts kept(64);
  kept.Keep(Ids{1, 2, 3, 4});
  kept.Keep(Ids{5, 6, 7, 8});
  EXPECT_EQ(Suffixes(kept, {3, 4, 5}, 3), Ids{});
  EXPECT_EQ(Suffixes(kept, {4, 5, 6}, 3), Ids{});
  EXPECT_EQ(Suffixes(kept, {2, 3, 4}, 3), Ids{});
}

TEST(SuffixDraftsTest, TheOldestOutputsLeave) {
  SuffixDrafts kept(16);
  kept.Keep(Ids{1, 2, 3, 4, 5});
  for (TokenId id = 10; id < 13; ++id) kept.Keep(Ids{id, id, id, id});
  EXPECT_EQ(Suffixes(kept, {1, 2, 3}, 2), Ids{});
  EXPECT_EQ(Suffixes(kept, {12, 12, 12}, 1), (Ids{12}));
  Ids longer;
  for (TokenId id = 100; id < 150; ++id) longer.push_back(id);
  kept.Keep(longer);  // its end is what is kept
  EXPECT_EQ(Suffixes(kept, {102, 103, 104}, 2), Ids{});
  EXPECT_EQ(Suffixes(kept, {145, 146, 147}, 9), (Ids{148, 149}));
}

// Against a search of everything: the longest match, and as its continuation a token that most of
// the places of that length have.
TEST(SuffixDraftsTest, AgreesWithASearchOfEveryPlace) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const auto text = [&](int length) {
      Ids ids;
      for (int i = 0; i < length; ++i) ids.push_back(static_cast<TokenId>(random() % 3));
      return ids;
    };
    SuffixDrafts kept(64);
    std::vector<Ids> outputs;
    for (int i = 0; i < 2; ++i) {
      outputs.push_back(text(10));
      kept.Keep(outputs.back());
    }
    const Ids tokens = text(12);
    outputs.push_back(tokens);
    size_t longest = SuffixDrafts::kShortestMatch;
    std::vector<int> counts(3);
    for (const Ids& output : outputs)
      for (size_t next = 1; next < output.size(); ++next) {
        size_t length = 0;
        while (length < tokens.size() && next > length &&
               output[next - 1 - length] == tokens[tokens.size() - 1 - length])
          ++length;
        if (length < longest) continue;
        if (length > longest) counts = {0, 0, 0};
        longest = length;
        ++counts[static_cast<size_t>(output[next])];
      }
    const Ids drafts = Suffixes(kept, tokens, 1);
    const int most = *std::max_element(counts.begin(), counts.end());
    if (most == 0) {
      EXPECT_EQ(drafts, Ids{});
    } else {
      ASSERT_EQ(drafts.size(), 1U);
      EXPECT_EQ(counts[static_cast<size_t>(drafts[0])], most);
    }
  }
}

}  // namespace
}  // namespace inflight::decoding

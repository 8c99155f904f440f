// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace inflight::grammar {
namespace {

TEST(TokenTrieTest, TokensStandAtTheNodeOfTheirBytes) {
  const std::vector<std::string> texts = {"b", "ab", "", "a", "abc", "ab", "ac"};
  const auto trie = TrieOf(MakeTokenTexts(texts));
  EXPECT_EQ(trie->num_tokens, 7);
  EXPECT_EQ(trie->longest, 3U);
  // Going down first: the root, a, ab, abc, ac, b.
  ASSERT_EQ(trie->num_nodes(), 6U);
  std::string bytes;
  for (uint32_t node = 1; node < trie->num_nodes(); ++node)
    bytes += static_cast<char>(trie->nodes[node].byte);
  EXPECT_EQ(bytes, "abccb");
  EXPECT_THAT(trie->TokensOf(0), testing::IsEmpty());
  EXPECT_THAT(trie->TokensOf(1), testing::ElementsAre(3));
  EXPECT_THAT(trie->TokensOf(2), testing::ElementsAre(1, 5));
  EXPECT_THAT(trie->TokensOf(3), testing::ElementsAre(4));
  EXPECT_THAT(trie->TokensOf(4), testing::ElementsAre(6));
  EXPECT_THAT(trie->TokensOf(5), testing::ElementsAre(0));
  EXPECT_EQ(trie->nodes[0].end, 6U);
  EXPECT_EQ(trie->nodes[1].end, 5U);
  EXPECT_EQ(trie->nodes[2].end, 4U);
  EXPECT_FALSE(trie->HasChildren(3));
}

TEST(TokenTrieTest, GuidesOfOneVocabularyShareTheTrie) {
  const std::vector<std::string> texts = {"a"};
  const auto tokens = MakeTokenTexts(texts);
  const auto trie = TrieOf(tokens);
  EXPECT_EQ(TrieOf(tokens), trie);
  EXPECT_NE(TrieOf(MakeTokenTexts(texts)), trie);
}

TEST(TokenTrieTest, VocabularyWithoutBytesHasNoTokens) {
  const auto trie = TrieOf(MakeTokenTexts(std::vector<std::string>(3)));
  EXPECT_EQ(trie->num_nodes(), 1U);
  EXPECT_FALSE(trie->HasChildren(TokenTrie::kRoot));
}

}  // namespace
}  // namespace inflight::grammar

// SPDX-License-Identifier: Apache-2.0
// Layers that see the whole text beside layers with a window: what each group holds of a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kv_cache/kv_cache.h"

namespace inflight::kv_cache {
namespace {

std::vector<TokenId> Text(int num_tokens, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Blocks of 4. The second group's tokens see the last 8, their own among them.
class KvGroupsTest : public testing::Test {
 protected:
  static constexpr std::array<GroupConfig, 2> kGroups = {
      {{.num_blocks = 40, .block_size = 4}, {.num_blocks = 8, .block_size = 4, .window = 8}}};

  // The tokens that it reuses; -1: it does not fit.
  int Start(SequenceBlocks* sequence, const std::vector<TokenId>& known, int max_kv_tokens,
            int max_ahead_tokens = 1) {
    int num_cached = 0;
    const bool fits = cache_.Start({.tokens = known,
                                    .max_kv_tokens = max_kv_tokens,
                                    .reserved_tokens = max_kv_tokens,
                                    .max_ahead_tokens = max_ahead_tokens,
                                    .max_reused_blocks = 100},
                                   sequence, &num_cached);
    return fits ? num_cached : -1;
  }
  // Computes token after token up to `end`.
  void Run(SequenceBlocks* sequence, const std::vector<TokenId>& tokens, int begin, int end) {
    for (int n = begin + 1; n <= end; ++n) {
      cache_.Extend(sequence, n);
      cache_.Publish(sequence, tokens, n);
      cache_.Advance(sequence, n, /*max_ahead_tokens=*/1);
    }
  }
  // A whole text, from the start to its end.
  int RunWhole(const std::vector<TokenId>& tokens, int num_known) {
    SequenceBlocks sequence;
    const int num_cached = Start(&sequence, {tokens.begin(), tokens.begin() + num_known},
                                 static_cast<int>(tokens.size()));
    Run(&sequence, tokens, std::max(num_cached, 0), static_cast<int>(tokens.size()));
    cache_.Free(&sequence);
    return num_cached;
  }

  KvCache cache_{kGroups, /*enable_prefix_reuse=*/true};
};

TEST(BlockPoolOrderTest, WhatIsReleasedFirstIsHandedOutFirst) {
  std::vector<BlockId> evicted;
  BlockPool pool(5, [&](BlockId block) { evicted.push_back(block); });
  std::vector<BlockId> blocks(5);
  ASSERT_TRUE(pool.Allocate(blocks).ok());
  pool.Release(blocks[0], /*keep_contents=*/true);
  pool.ReleaseFirst(blocks[1]);
  pool.Release(blocks[2], /*keep_contents=*/true);
  pool.ReleaseFirst(blocks[3]);
  pool.Take(blocks[4]);
  pool.ReleaseFirst(blocks[4]);
  EXPECT_EQ(pool.num_free(), 4) << "one is still held";
  EXPECT_EQ(pool.num_reusable(), 4);
  pool.Take(blocks[3]);
  pool.Release(blocks[3], /*keep_contents=*/true);
  std::vector<BlockId> again(4);
  ASSERT_TRUE(pool.Allocate(again).ok());
  EXPECT_THAT(again, ::testing::ElementsAre(blocks[1], blocks[0], blocks[2], blocks[3]));
  EXPECT_EQ(evicted, again);
}

TEST_F(KvGroupsTest, BlocksOfTheWindowAreFreedWhileALongTextGoesOn) {
  const auto tokens = Text(140);
  SequenceBlocks a;
  ASSERT_EQ(Start(&a, Text(1), 140), 0);
  int num_computed = 0;
  struct Free {
    int num_tokens;
    int64_t whole, window;
  };
  // The token at position n sees keys from n - 7 on.
  for (const auto& [n, whole, window] :
       std::vector<Free>{{4, 39, 7},   // of both groups one block
                         {11, 37, 6},  // sees key 4, the first of block 1: block 0 went
                         {12, 37, 6},  // sees key 5: blocks 1 and 2
                         {15, 36, 6},  // sees key 8: blocks 2 and 3
                         {16, 36, 6},
                         {17, 35, 5},  // sees key 10: blocks 2, 3 and 4
                         {19, 35, 6},  // sees key 12
                         {40, 30, 6},
                         {137, 5, 5},  // sees key 130, of block 32: 32, 33 and 34
                         {140, 5, 6}}) {
    Run(&a, tokens, num_computed, n);
    num_computed = n;
    EXPECT_EQ(cache_.num_free(0), whole) << n;
    EXPECT_EQ(cache_.num_free(1), window) << n;
  }
  EXPECT_EQ(cache_.num_blocks(1), 8);
  cache_.Free(&a);
  EXPECT_EQ(cache_.num_free(0), 40);
  EXPECT_EQ(cache_.num_free(1), 8);
}

// Ten blocks are in the first group; of the second's eight only the last ones of a text are left.
TEST_F(KvGroupsTest, ATextIsReusedWithoutTheBeginningThatAWindowForgot) {
  const auto tokens = Text(41);
  EXPECT_EQ(RunWhole(tokens, 1), 0);
  EXPECT_EQ(RunWhole(tokens, 41), 40);
  SequenceBlocks b;
  ASSERT_EQ(Start(&b, tokens, 60), 40);
  const auto& blocks = b.groups[1].blocks;
  ASSERT_EQ(blocks.size(), 10U);
  // Token 40 sees keys from 33 on, of block 8.
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(blocks[i], -1) << i;
  EXPECT_GE(blocks[8], 0);
  EXPECT_GE(blocks[9], 0);
  for (const BlockId block : b.groups[0].blocks) EXPECT_GE(block, 0);
  cache_.Free(&b);
}

// Another text pushes out the oldest blocks of the window's pool. What is reused ends where a block
// that is seen behind it is missing.
TEST_F(KvGroupsTest, WhatIsReusedEndsWhereTheWindowIsIncomplete) {
  const auto tokens = Text(41);
  EXPECT_EQ(RunWhole(tokens, 1), 0);
  EXPECT_EQ(RunWhole(Text(24, 1000), 24), 0) << "a prompt of six blocks, of eight";
  EXPECT_EQ(RunWhole(tokens, 41), 40) << "blocks 8 and 9 are left";
  EXPECT_EQ(RunWhole(Text(32, 2000), 32), 0) << "of all eight";
  EXPECT_EQ(RunWhole(tokens, 41), 0);
  EXPECT_EQ(RunWhole(tokens, 41), 40) << "and is there again";
}

// The window's pool has eight blocks; 36 are generated behind a prompt of four.
TEST_F(KvGroupsTest, WhatIsGeneratedPushesNoPromptOut) {
  const auto tokens = Text(160);
  EXPECT_EQ(RunWhole(tokens, 17), 0);
  // The token at position 16 sees keys from 9 on, of blocks 2 and 3.
  EXPECT_EQ(RunWhole(Text(17), 17), 16);
  EXPECT_EQ(RunWhole(tokens, 160), 156) << "the end of the text was held to its end";
}

// What hangs below nodes that are gone is not found by who comes to the same place again.
TEST_F(KvGroupsTest, WhatTheFirstGroupForgotIsNotReused) {
  const auto tokens = Text(41);
  EXPECT_EQ(RunWhole(tokens, 1), 0);
  EXPECT_EQ(RunWhole(Text(160, 1000), 1), 0) << "takes all 40 blocks of the first group";
  EXPECT_EQ(RunWhole(tokens, 41), 0);
  EXPECT_EQ(RunWhole(tokens, 41), 40);
  std::vector<TokenId> other = tokens;
  other[0] = 77;  // the same blocks behind another beginning
  EXPECT_EQ(RunWhole(other, 41), 0);
}

// Chunks of a prompt are longer than what follows: once it is computed others get what was set
// aside for them.
TEST_F(KvGroupsTest, WhatAChunkNeededIsGivenUpBehindThePrompt) {
  EXPECT_EQ(KvCache::WindowBlocks(kGroups[1], 16), 7);
  EXPECT_EQ(KvCache::WindowBlocks(kGroups[1], 8), 5);
  EXPECT_EQ(KvCache::WindowBlocks(kGroups[1], 1), 3);
  const auto tokens = Text(80);
  SequenceBlocks a, b;
  ASSERT_EQ(Start(&a, Text(32), 80, /*max_ahead_tokens=*/16), 0);
  for (const int n : {16, 32}) {
    EXPECT_EQ(Start(&b, Text(8, 500), 40, /*max_ahead_tokens=*/8), -1) << "7 + 5 of 8";
    cache_.Extend(&a, n);
    cache_.Publish(&a, tokens, n);
    cache_.Advance(&a, n, n == 32 ? 1 : 16);
  }
  ASSERT_EQ(Start(&b, Text(8, 500), 40, /*max_ahead_tokens=*/8), 0) << "3 + 5 of 8";
  Run(&a, tokens, 32, 80);
  Run(&b, Text(40, 500), 0, 40);
  cache_.Free(&a);
  cache_.Free(&b);
  EXPECT_EQ(cache_.num_free(1), 8);
  SequenceBlocks c;
  ASSERT_EQ(Start(&c, Text(1, 900), 140, /*max_ahead_tokens=*/20), 0) << "all 8 are free again";
  cache_.Free(&c);
}

}  // namespace
}  // namespace inflight::kv_cache

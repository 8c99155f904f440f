// SPDX-License-Identifier: Apache-2.0
#include "kv_cache/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace inflight::kv_cache {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> Iota(int n, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// ---- BlockPool ----

struct PoolTest : ::testing::Test {
  BlockPool pool{4, [this](BlockId block) { evicted.push_back(block); }};
  std::vector<BlockId> evicted;

  std::vector<BlockId> Allocate(size_t n) {
    std::vector<BlockId> out(n, -1);
    EXPECT_TRUE(pool.Allocate(out).ok());
    return out;
  }
};

TEST_F(PoolTest, AllocatesNothingWhenTooFewAreFree) {
  Allocate(3);
  std::vector<BlockId> out(2, -1);
  const Status status = pool.Allocate(out);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "KV cache: 2 blocks wanted, 1 free");
  EXPECT_THAT(out, ElementsAre(-1, -1));
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_used(), 3);
}

TEST_F(PoolTest, BlockReturnsWithItsLastReference) {
  const BlockId block = Allocate(1)[0];
  pool.Take(block);
  EXPECT_EQ(pool.refs(block), 2);
  pool.Release(block, /*keep_contents=*/false);
  EXPECT_EQ(pool.num_used(), 1);
  pool.Release(block, /*keep_contents=*/false);
  EXPECT_EQ(pool.num_used(), 0);
}

TEST_F(PoolTest, FreeBlocksGoBeforeReusableOnesAndThoseByAge) {
  const auto blocks = Allocate(3);
  pool.Release(blocks[2], /*keep_contents=*/true);
  pool.Release(blocks[0], /*keep_contents=*/true);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.num_reusable(), 2);
  EXPECT_THAT(Allocate(1), ElementsAre(3));  // the one that was never used
  EXPECT_TRUE(evicted.empty());
  EXPECT_THAT(Allocate(2), ElementsAre(blocks[2], blocks[0]));
  EXPECT_THAT(evicted, ElementsAre(blocks[2], blocks[0]));
}

TEST_F(PoolTest, TakingAReusableBlockSavesItFromEviction) {
  const auto blocks = Allocate(4);
  for (const BlockId block : blocks) pool.Release(block, /*keep_contents=*/true);
  pool.Take(blocks[0]);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_THAT(Allocate(3), ElementsAre(blocks[1], blocks[2], blocks[3]));
  pool.Release(blocks[0], /*keep_contents=*/true);
  EXPECT_THAT(Allocate(1), ElementsAre(blocks[0]));
}

// ---- PrefixIndex ----

uint64_t SameHash(const void*, size_t, uint64_t) { return 42; }

TEST(PrefixIndexTest, FindsAChildByItsParentAndTokens) {
  PrefixIndex index(8, 2);
  const auto root = index.Root(0);
  const auto first = index.Insert(root, Iota(2), 5);
  const auto second = index.Insert(first, Iota(2), 3);
  EXPECT_EQ(index.Find(root, Iota(2)).block, 5);
  EXPECT_EQ(index.Find(first, Iota(2)).block, 3);
  EXPECT_EQ(index.Find(second, Iota(2)).block, -1);
  EXPECT_EQ(index.Find(root, Iota(2, 1)).block, -1);
  EXPECT_EQ(index.Find(index.Root(1), Iota(2)).block, -1) << "another salt";
}

TEST(PrefixIndexTest, EqualHashesAreToldApartByTokensParentAndSalt) {
  PrefixIndex index(8, 2, &SameHash);
  const auto root = index.Root(0);
  const auto a = index.Insert(root, Iota(2, 10), 0);
  index.Insert(root, Iota(2, 20), 1);
  index.Insert(a, Iota(2, 20), 2);
  EXPECT_EQ(index.Find(root, Iota(2, 10)).block, 0);
  EXPECT_EQ(index.Find(root, Iota(2, 20)).block, 1);
  EXPECT_EQ(index.Find(a, Iota(2, 20)).block, 2);
  EXPECT_EQ(index.Find(root, Iota(2, 30)).block, -1);
  EXPECT_EQ(index.Find(a, Iota(2, 10)).block, -1);
  EXPECT_EQ(index.Find(index.Root(9), Iota(2, 10)).block, -1);
  index.Erase(1);
  EXPECT_EQ(index.Find(root, Iota(2, 20)).block, -1);
  EXPECT_EQ(index.Find(a, Iota(2, 20)).block, 2);
}

TEST(PrefixIndexTest, ChildrenOfAnErasedBlockAreOutOfReachForEver) {
  PrefixIndex index(8, 2);
  const auto root = index.Root(0);
  const auto old_parent = index.Insert(root, Iota(2), 0);
  index.Insert(old_parent, Iota(2, 7), 1);
  index.Erase(0);
  EXPECT_FALSE(index.IsLive(old_parent));
  const auto new_parent = index.Insert(root, Iota(2), 0);  // same block, same tokens
  EXPECT_EQ(index.Find(new_parent, Iota(2, 7)).block, -1);
}

// ---- KvCache ----

struct KvCacheTest : ::testing::Test {
  static constexpr GroupConfig kGroup{.num_blocks = 8, .block_size = 4};
  KvCache cache{std::span(&kGroup, 1), /*enable_prefix_reuse=*/true};

  // The number of reused tokens; -1 when it does not fit.
  int Start(SequenceBlocks* sequence, const std::vector<TokenId>& tokens, int max_kv_tokens,
            uint64_t salt = 0) {
    int num_cached = 0;
    const bool fits = cache.Start({.tokens = tokens,
                                   .salt = salt,
                                   .max_kv_tokens = max_kv_tokens,
                                   .reserved_tokens = max_kv_tokens,
                                   .max_reused_blocks = 100},
                                  sequence, &num_cached);
    return fits ? num_cached : -1;
  }

  // A sequence that computed all of `tokens`, published, and went.
  void Remember(const std::vector<TokenId>& tokens, uint64_t salt = 0) {
    SequenceBlocks sequence;
    const int n = static_cast<int>(tokens.size());
    ASSERT_GE(Start(&sequence, tokens, n, salt), 0);
    cache.Extend(&sequence, n);
    cache.Publish(&sequence, tokens, n);
    cache.Free(&sequence);
  }
};

TEST_F(KvCacheTest, ReservesTheWholeLengthAtTheStart) {
  SequenceBlocks a, b;
  EXPECT_EQ(Start(&a, Iota(5), 21), 0);  // 6 blocks
  EXPECT_EQ(cache.stats().blocks_used, 0) << "reserved, not taken";
  EXPECT_EQ(Start(&b, Iota(5, 50), 9), -1) << "3 blocks, 2 left";
  EXPECT_TRUE(b.groups.empty());
  EXPECT_EQ(Start(&b, Iota(5, 50), 8), 0);
  cache.Extend(&a, 21);
  cache.Extend(&b, 8);
  EXPECT_EQ(cache.stats().blocks_used, 8);
  cache.Free(&a);
  cache.Free(&b);
  EXPECT_EQ(cache.stats().blocks_used, 0);
}

TEST_F(KvCacheTest, EndGrowthGivesTheReservationToOthers) {
  SequenceBlocks a, b;
  Start(&a, Iota(5), 32);
  cache.Extend(&a, 5);  // 2 of 8 blocks
  const uint64_t version = cache.version();
  EXPECT_EQ(Start(&b, Iota(5, 50), 24), -1);
  cache.EndGrowth(&a);
  EXPECT_NE(cache.version(), version);
  EXPECT_EQ(Start(&b, Iota(5, 50), 24), 0);
  cache.Free(&a);
  cache.Free(&b);
}

TEST_F(KvCacheTest, ReusesFullBlocksAndAlwaysComputesTheLastPromptToken) {
  Remember(Iota(10));
  SequenceBlocks sequence;
  EXPECT_EQ(Start(&sequence, Iota(10), 12), 8);
  cache.Free(&sequence);
  EXPECT_EQ(Start(&sequence, Iota(9), 12), 8);
  cache.Free(&sequence);
  EXPECT_EQ(Start(&sequence, Iota(8), 12), 4) << "token 7 must be computed for its logits";
  cache.Free(&sequence);
  EXPECT_EQ(Start(&sequence, Iota(3), 12), 0);
  cache.Free(&sequence);
  EXPECT_EQ(Start(&sequence, Iota(10), 12, /*salt=*/1), 0);
  cache.Free(&sequence);
}

TEST_F(KvCacheTest, CollidingHashesNeverLendAnotherPromptsBlocks) {
  KvCache colliding(std::span(&kGroup, 1), true, &SameHash);
  SequenceBlocks a, b;
  int num_cached = 0;
  const auto tokens = Iota(8);
  ASSERT_TRUE(colliding.Start(
      {.tokens = tokens, .max_kv_tokens = 8, .reserved_tokens = 8, .max_reused_blocks = 9}, &a,
      &num_cached));
  colliding.Extend(&a, 8);
  colliding.Publish(&a, tokens, 8);
  const auto others = Iota(9, 30);
  ASSERT_TRUE(colliding.Start(
      {.tokens = others, .max_kv_tokens = 9, .reserved_tokens = 9, .max_reused_blocks = 9}, &b,
      &num_cached));
  EXPECT_EQ(num_cached, 0);
}

TEST_F(KvCacheTest, CreditsBlocksThatOthersHoldButChargesIdleOnes) {
  const auto tokens = Iota(17);
  Remember(tokens);  // 4 full blocks reusable, 8 free in all
  SequenceBlocks a, b, c;
  EXPECT_EQ(Start(&a, tokens, 20), 16);  // takes 4 idle ones and reserves 1
  EXPECT_EQ(Start(&b, tokens, 20), 16);  // shares the 4, reserves 1
  EXPECT_EQ(Start(&c, Iota(5, 50), 9), -1) << "8 - 4 - 2 = 2 blocks left, 3 wanted";
  EXPECT_EQ(Start(&c, Iota(5, 50), 8), 0);
  EXPECT_EQ(cache.stats().blocks_used, 4);
  cache.Free(&a);
  EXPECT_EQ(cache.stats().blocks_used, 4) << "b still holds them";
  cache.Free(&b);
  cache.Free(&c);
  EXPECT_EQ(cache.stats().blocks_used, 0);
}

TEST_F(KvCacheTest, EvictsLeavesFirst) {
  Remember(Iota(16));  // 4 blocks
  SequenceBlocks other;
  EXPECT_EQ(Start(&other, Iota(4, 90), 24), 0);
  cache.Extend(&other, 24);  // 6 blocks: 4 free ones and 2 evicted
  SequenceBlocks again;
  EXPECT_EQ(Start(&again, Iota(16), 16), -1) << "2 idle and 2 more";
  cache.Free(&other);
  EXPECT_EQ(Start(&again, Iota(16), 16), 8) << "the first two blocks survived";
  cache.Free(&again);
}

TEST_F(KvCacheTest, PublishesOnlyBlocksThatAreFullOfValidTokens) {
  const auto tokens = Iota(12);
  SequenceBlocks a, b;
  Start(&a, tokens, 12);
  cache.Extend(&a, 12);
  cache.Publish(&a, tokens, 7);
  EXPECT_EQ(Start(&b, tokens, 12), 4);
  cache.Free(&b);
  cache.Publish(&a, tokens, 11);
  EXPECT_EQ(Start(&b, tokens, 12), 8);
  cache.Free(&b);
  cache.Free(&a);
}

TEST_F(KvCacheTest, TwinThatOutlivesThePublishedBlocksPublishesItsOwn) {
  const auto tokens = Iota(9);
  SequenceBlocks a, b, filler, c;
  Start(&a, tokens, 9);
  Start(&b, tokens, 9);  // computes the same, unknowingly
  cache.Extend(&a, 9);
  cache.Extend(&b, 9);
  cache.Publish(&a, tokens, 4);
  cache.Publish(&b, tokens, 4);  // finds a's block
  cache.Free(&a);
  EXPECT_EQ(Start(&filler, Iota(1, 90), 20), 0);
  cache.Extend(&filler, 20);  // all the rest: a's block is evicted
  cache.Publish(&b, tokens, 9);
  cache.Free(&filler);
  EXPECT_EQ(Start(&c, tokens, 9), 8);
  EXPECT_EQ(c.groups[0].blocks[0], b.groups[0].blocks[0]);
  cache.Free(&b);
  cache.Free(&c);
}

TEST_F(KvCacheTest, CountersTellReusedFromNewAndMissed) {
  Remember(Iota(8));  // 2 new; 1 matchable block missed
  SequenceBlocks sequence;
  Start(&sequence, Iota(14), 14);  // 2 reused, 1 of 3 matchable missed
  cache.Extend(&sequence, 14);     // 2 new
  const KvCacheStats stats = cache.stats();
  EXPECT_EQ(stats.alloc_new, 4);
  EXPECT_EQ(stats.reused, 2);
  EXPECT_EQ(stats.missed, 2);
  EXPECT_EQ(stats.alloc_total, 6);
  EXPECT_EQ(stats.blocks_max, 8);
  EXPECT_EQ(stats.blocks_used, 4);
  EXPECT_EQ(stats.blocks_free, 4);
  cache.Free(&sequence);
}

TEST(KvCacheGroupsTest, PrefixIsReusedAsFarAsEveryGroupHasIt) {
  const std::vector<GroupConfig> groups = {{.num_blocks = 8, .block_size = 8},
                                           {.num_blocks = 16, .block_size = 4}};
  KvCache cache(groups, true);
  const auto tokens = Iota(20);
  SequenceBlocks a, b;
  int num_cached = -1;
  ASSERT_TRUE(cache.Start(
      {.tokens = tokens, .max_kv_tokens = 20, .reserved_tokens = 20, .max_reused_blocks = 9}, &a,
      &num_cached));
  cache.Extend(&a, 20);
  EXPECT_EQ(a.groups[0].blocks.size(), 3u);
  EXPECT_EQ(a.groups[1].blocks.size(), 5u);
  cache.Publish(&a, tokens, 12);  // 1 block of the first group, 3 of the second
  ASSERT_TRUE(cache.Start(
      {.tokens = tokens, .max_kv_tokens = 20, .reserved_tokens = 20, .max_reused_blocks = 9}, &b,
      &num_cached));
  EXPECT_EQ(num_cached, 8);
  EXPECT_EQ(b.groups[0].blocks.size(), 1u);
  EXPECT_EQ(b.groups[1].blocks.size(), 2u);
  cache.Free(&a);
  cache.Free(&b);
}

TEST(KvCacheReuseOffTest, NothingIsPublishedOrMissed) {
  const GroupConfig group{.num_blocks = 8, .block_size = 4};
  KvCache cache(std::span(&group, 1), /*enable_prefix_reuse=*/false);
  const auto tokens = Iota(8);
  for (int i = 0; i < 2; ++i) {
    SequenceBlocks sequence;
    int num_cached = -1;
    ASSERT_TRUE(cache.Start(
        {.tokens = tokens, .max_kv_tokens = 8, .reserved_tokens = 8, .max_reused_blocks = 9},
        &sequence, &num_cached));
    EXPECT_EQ(num_cached, 0);
    cache.Extend(&sequence, 8);
    cache.Publish(&sequence, tokens, 8);
    cache.Free(&sequence);
  }
  EXPECT_EQ(cache.stats().missed, 0);
  EXPECT_EQ(cache.stats().reused, 0);
}

// ---- sliding windows ----

// Blocks of 4; a token sees the first 3 and the last 5, itself among them.
struct WindowTest : ::testing::Test {
  static constexpr GroupConfig kGroup{
      .num_blocks = 8, .block_size = 4, .window = 8, .num_sinks = 3};
  KvCache cache{std::span(&kGroup, 1), /*enable_prefix_reuse=*/true};

  int Start(SequenceBlocks* sequence, const std::vector<TokenId>& tokens, int max_kv_tokens,
            int num_beams = 1) {
    int num_cached = 0;
    const bool fits = cache.Start({.tokens = tokens,
                                   .num_beams = num_beams,
                                   .max_kv_tokens = max_kv_tokens,
                                   .reserved_tokens = max_kv_tokens,
                                   .max_ahead_tokens = 1,
                                   .max_reused_blocks = 100},
                                  sequence, &num_cached);
    return fits ? num_cached : -1;
  }
  // Computes token after token up to `end`.
  void Run(SequenceBlocks* sequence, const std::vector<TokenId>& tokens, int begin, int end) {
    for (int n = begin + 1; n <= end; ++n) {
      cache.Extend(sequence, n);
      cache.Publish(sequence, tokens, n);
      cache.Advance(sequence, n, /*max_ahead_tokens=*/1);
    }
  }
};

TEST_F(WindowTest, HoldsTheSinksAndTheWindowHoweverLongItGets) {
  // The sinks' block, and 5 tokens wherever they begin: 2 blocks.
  EXPECT_EQ(KvCache::WindowBlocks(kGroup, 1), 3);
  EXPECT_EQ(KvCache::WindowBlocks(kGroup, 2), 4) << "6 tokens: 1 + 4 + 1";
  SequenceBlocks a, b;
  const auto tokens = Iota(4000);
  ASSERT_EQ(Start(&a, Iota(1), 4000), 0) << "1000 blocks in all";
  ASSERT_EQ(Start(&b, Iota(1, 50), 4000), 0);
  SequenceBlocks c;
  EXPECT_EQ(Start(&c, Iota(1, 90), 4000), -1) << "3 + 3 of 8 blocks are set aside";
  Run(&a, tokens, 0, 4000);
  EXPECT_EQ(cache.stats().blocks_used, 2);
  const auto& blocks = a.groups[0].blocks;
  ASSERT_EQ(blocks.size(), 1000U);
  EXPECT_GE(blocks[0], 0) << "the sinks'";
  EXPECT_EQ(blocks[1], -1);
  // Token 4000 sees keys from 3996 on, the first of the last block.
  EXPECT_EQ(blocks[998], -1);
  EXPECT_GE(blocks[999], 0);
  cache.Free(&a);
  cache.Free(&b);
  EXPECT_EQ(cache.stats().blocks_used, 0);
}

TEST_F(WindowTest, GivesABlockBackWithTheLastTokenThatSeesIt) {
  SequenceBlocks a;
  ASSERT_EQ(Start(&a, Iota(1), 40), 0);
  const auto tokens = Iota(40);
  // Token p sees keys from p - 4 on: block 1 (keys 4 to 7) is last seen by token 11.
  Run(&a, tokens, 0, 11);
  EXPECT_GE(a.groups[0].blocks[1], 0);
  Run(&a, tokens, 11, 12);
  EXPECT_EQ(a.groups[0].blocks[1], -1);
  cache.Free(&a);
}

TEST_F(WindowTest, AReusedPrefixLendsWhatIsSeen) {
  const auto tokens = Iota(41);
  SequenceBlocks a;
  ASSERT_EQ(Start(&a, Iota(1), 16), 0);
  Run(&a, tokens, 0, 16);
  cache.Free(&a);
  SequenceBlocks b;
  ASSERT_EQ(Start(&b, Iota(17), 40), 16);
  // Token 16 sees keys from 12 on.
  const auto& blocks = b.groups[0].blocks;
  ASSERT_EQ(blocks.size(), 4U);
  EXPECT_GE(blocks[0], 0);
  EXPECT_EQ(blocks[1], -1);
  EXPECT_EQ(blocks[2], -1);
  EXPECT_GE(blocks[3], 0);
  EXPECT_EQ(cache.stats().blocks_used, 2);
  Run(&b, tokens, 16, 40);
  EXPECT_EQ(cache.stats().blocks_used, 2) << "the sinks' and the last";
  cache.Free(&b);
  EXPECT_EQ(cache.stats().blocks_used, 0);
}

// The one that computed a block and the one that reuses it each need another once they are past it.
TEST_F(WindowTest, ASharedBlockIsCountedForEachThatHoldsIt) {
  const auto tokens = Iota(40);
  SequenceBlocks a, b, c;
  ASSERT_EQ(Start(&a, Iota(1), 40), 0);
  Run(&a, tokens, 0, 8);
  ASSERT_EQ(Start(&b, Iota(9), 40), 8) << "both blocks are a's";
  EXPECT_EQ(cache.stats().blocks_used, 2);
  EXPECT_EQ(Start(&c, Iota(1, 90), 40), -1) << "3 + 3 of 8 blocks are claimed";
  Run(&a, tokens, 8, 40);
  Run(&b, tokens, 8, 40);
  cache.Free(&a);
  ASSERT_EQ(Start(&c, Iota(1, 90), 40), 0);
  cache.Free(&b);
  cache.Free(&c);
  EXPECT_EQ(cache.stats().blocks_used, 0);
}

TEST_F(WindowTest, BeamsKeepAllTheirBlocks) {
  SequenceBlocks a;
  EXPECT_EQ(Start(&a, Iota(4), 40, /*num_beams=*/2), -1) << "1 + 2 * 9 + 2 blocks";
  ASSERT_EQ(Start(&a, Iota(4), 12, /*num_beams=*/2), 0) << "1 + 2 * 2 + 2";
  cache.Extend(&a, 12);
  cache.Advance(&a, 12, /*max_ahead_tokens=*/1);
  for (const BlockId block : a.groups[0].blocks) EXPECT_GE(block, 0);
  cache.Free(&a);
}

// ---- the host pool ----

struct HostPoolTest : ::testing::Test {
  static constexpr GroupConfig kGroup{.num_blocks = 4, .block_size = 2, .num_host_blocks = 3};
  KvCache cache{std::span(&kGroup, 1), /*enable_prefix_reuse=*/true};

  // Computes and publishes all of `tokens`, then goes; the number of reused tokens.
  int Run(const std::vector<TokenId>& tokens) {
    SequenceBlocks sequence;
    int num_cached = -1;
    const int n = static_cast<int>(tokens.size());
    EXPECT_TRUE(cache.Start(
        {.tokens = tokens, .max_kv_tokens = n, .reserved_tokens = n, .max_reused_blocks = 9},
        &sequence, &num_cached));
    cache.Extend(&sequence, n);
    cache.Publish(&sequence, tokens, n);
    cache.Free(&sequence);
    return num_cached;
  }
  using Copies = std::vector<std::pair<BlockId, BlockId>>;
  Copies TakeCopies() {
    Copies copies;
    for (const HostCopy& copy : cache.copies()) copies.emplace_back(copy.from, copy.to);
    cache.ClearCopies();
    return copies;
  }
};

TEST_F(HostPoolTest, WhatThePoolGivesUpGoesToTheHostAndComesBackForItsPrefix) {
  EXPECT_EQ(Run(Iota(8)), 0);  // blocks 0 to 3 of tokens 0 to 7; released last block first
  EXPECT_EQ(TakeCopies(), Copies{});
  EXPECT_EQ(Run(Iota(4, 50)), 0);
  EXPECT_EQ(TakeCopies(), (Copies{{3, 4}, {2, 5}})) << "the oldest leaves; host ids from 4 on";
  EXPECT_EQ(cache.stats().offloaded, 2);
  EXPECT_EQ(cache.stats().host_blocks_used, 2);
  // Of tokens 0 to 7 all blocks are known, two of them on the host; the last is computed anyway.
  EXPECT_EQ(Run(Iota(8)), 6);
  // The block of tokens 4, 5 (host id 5) comes back; for it and the last one the blocks of 50 to 53
  // make room, the leaf first.
  EXPECT_EQ(TakeCopies().size(), 3U);
  EXPECT_EQ(cache.stats().onboarded, 1);
  EXPECT_EQ(cache.stats().offloaded, 4);
  EXPECT_EQ(cache.stats().blocks_used, 0);
}

// What an observer was told: "+1 of 3" a block that begins with token 1, after the one that begins
// with 3, "-1" its end; "h" behind it where it is the host's.
struct Told : KvObserver {
  std::vector<std::string> lines;
  std::map<uint64_t, TokenId> first_tokens;

  static std::string Where(KvMedium medium) { return medium == KvMedium::kHost ? "h" : ""; }
  void OnStored(const StoredKvBlock& block) noexcept override {
    first_tokens[block.hash] = block.tokens[0];
    std::string line = "+" + std::to_string(block.tokens[0]);
    if (block.has_parent) line += " of " + std::to_string(first_tokens.at(block.parent_hash));
    lines.push_back(line + Where(block.medium));
  }
  void OnRemoved(uint64_t hash, KvMedium medium) noexcept override {
    lines.push_back("-" + std::to_string(first_tokens.at(hash)) + Where(medium));
  }
  std::vector<std::string> Take() { return std::exchange(lines, {}); }
};

TEST_F(HostPoolTest, AnObserverIsToldWhereEachBlockIs) {
  Told told;
  cache.Observe(&told);
  Run(Iota(4));
  EXPECT_THAT(told.Take(), ElementsAre("+0", "+2 of 0"));
  Run(Iota(4));
  EXPECT_THAT(told.Take(), ElementsAre()) << "nothing is new";
  Run(Iota(6, 50));  // two blocks are free; the leaf of 0 to 3 makes room for the third
  EXPECT_THAT(told.Take(), ElementsAre("+2 of 0h", "-2", "+50", "+52 of 50", "+54 of 52"));
  Run(Iota(8, 70));  // all four: the host has room for two more, then forgets what came first
  EXPECT_THAT(told.Take(),
              ElementsAre("+0h", "-0", "+54 of 52h", "-54", "-2h", "+52 of 50h", "-52", "-0h",
                          "+50h", "-50", "+70", "+72 of 70", "+74 of 72", "+76 of 74"));
}

TEST_F(HostPoolTest, AFullHostForgetsWhatCameFirst) {
  for (int i = 0; i < 4; ++i) Run(Iota(4, 100 * i));  // 8 blocks, of which 4 + 3 are kept
  EXPECT_EQ(cache.stats().host_blocks_used, 3);
  EXPECT_EQ(cache.stats().offloaded, 4);
  cache.ClearCopies();
  EXPECT_EQ(Run(Iota(5, 0)), 2) << "its leaf was the first to go, and is forgotten";
}

TEST_F(HostPoolTest, TwoSequencesShareABlockThatCameBack) {
  Run(Iota(4));
  Run(Iota(8, 50));
  ASSERT_EQ(cache.stats().offloaded, 2);
  const auto tokens = Iota(3);
  SequenceBlocks a, b;
  int num_cached = 0;
  const KvCache::StartParams params{
      .tokens = tokens, .max_kv_tokens = 3, .reserved_tokens = 3, .max_reused_blocks = 9};
  ASSERT_TRUE(cache.Start(params, &a, &num_cached));
  ASSERT_TRUE(cache.Start(params, &b, &num_cached));
  EXPECT_EQ(num_cached, 2);
  EXPECT_EQ(a.groups[0].blocks, b.groups[0].blocks);
  EXPECT_EQ(cache.stats().onboarded, 1);
  cache.Free(&a);
  cache.Free(&b);
}

TEST_F(HostPoolTest, MoreCopiesThanAStepMakesAreNotBegun) {
  const GroupConfig group{.num_blocks = 400, .block_size = 1, .num_host_blocks = 400};
  KvCache many(std::span(&group, 1), true);
  const auto run = [&many](const std::vector<TokenId>& tokens) {
    SequenceBlocks sequence;
    int num_cached = -1;
    const int n = static_cast<int>(tokens.size());
    EXPECT_TRUE(many.Start(
        {.tokens = tokens, .max_kv_tokens = n, .reserved_tokens = n, .max_reused_blocks = 999},
        &sequence, &num_cached));
    many.Extend(&sequence, n);
    many.Publish(&sequence, tokens, n);
    many.Free(&sequence);
    EXPECT_LE(std::ssize(many.copies()), KvCache::kMaxCopies);
    many.ClearCopies();
    return num_cached;
  };
  run(Iota(400));
  run(Iota(400, 1000));
  EXPECT_EQ(many.stats().offloaded, KvCache::kMaxCopies) << "of the leaves; others are forgotten";
  // The root was released last, so it is among the forgotten: nothing can be reached.
  EXPECT_EQ(run(Iota(400)), 0);
}

}  // namespace
}  // namespace inflight::kv_cache

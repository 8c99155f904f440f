// SPDX-License-Identifier: Apache-2.0
#include "kv_cache/beam_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "kv_cache/kv_cache.h"

namespace inflight::kv_cache {
namespace {

using ::testing::ElementsAre;

using Parents = std::vector<int32_t>;

struct Beams {
  std::vector<std::vector<BlockId>> tables;
  std::vector<BlockId> spares;

  std::vector<BlockCopy> Reorder(const Parents& parents, int num_tokens, int block_size) {
    std::vector<BeamTableView> views;
    for (size_t j = 0; j < tables.size(); ++j) views.push_back({tables[j].data(), &spares[j]});
    std::vector<BlockCopy> copies;
    ReorderBeams(views, parents, num_tokens, block_size, &copies);
    return copies;
  }
};

TEST(BeamTablesTest, FullBlocksAreSharedAndTheOpenOneIsCopiedIntoTheSpare) {
  Beams beams{{{1, 2}, {1, 3}, {5, 4}}, {7, 8, 9}};
  const auto copies = beams.Reorder({1, 1, 0}, /*num_tokens=*/6, /*block_size=*/4);
  EXPECT_THAT(beams.tables, ElementsAre(ElementsAre(1, 7), ElementsAre(1, 3), ElementsAre(1, 9)));
  EXPECT_THAT(beams.spares, ElementsAre(2, 8, 4));
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].from, 3);
  EXPECT_EQ(copies[0].to, 7);
  EXPECT_EQ(copies[0].num_tokens, 2);
  EXPECT_EQ(copies[1].from, 2) << "what beam 0 had, which has another block now";
  EXPECT_EQ(copies[1].to, 9);
}

TEST(BeamTablesTest, WithoutAnOpenBlockNothingIsCopied) {
  Beams beams{{{1, 2}, {1, 3}}, {7, 8}};
  EXPECT_TRUE(beams.Reorder({1, 1}, /*num_tokens=*/8, /*block_size=*/4).empty());
  EXPECT_THAT(beams.tables, ElementsAre(ElementsAre(1, 3), ElementsAre(1, 3)));
  EXPECT_THAT(beams.spares, ElementsAre(7, 8));
}

TEST(BeamTablesTest, AfterThePromptTheOthersGetTheirTablesAndUseUpTheirSpares) {
  Beams beams{{{1, 2}, {-1, -1}}, {7, 8}};
  EXPECT_EQ(beams.Reorder({0, 0}, /*num_tokens=*/5, /*block_size=*/4).size(), 1u);
  EXPECT_THAT(beams.tables, ElementsAre(ElementsAre(1, 2), ElementsAre(1, 8)));
  EXPECT_THAT(beams.spares, ElementsAre(7, -1));
}

// ---- KvCache ----

struct Search {
  explicit Search(int64_t num_blocks, int block_size) : group{num_blocks, block_size} {}

  bool Start(const std::vector<TokenId>& prompt, int num_beams, int max_kv_tokens) {
    int num_cached = 0;
    return cache.Start({.tokens = prompt,
                        .num_beams = num_beams,
                        .max_kv_tokens = max_kv_tokens,
                        .reserved_tokens = max_kv_tokens,
                        .max_reused_blocks = 100},
                       &blocks, &num_cached);
  }
  GroupTable& table() { return blocks.groups[0]; }

  GroupConfig group;
  KvCache cache{std::span(&group, 1), /*enable_prefix_reuse=*/true};
  SequenceBlocks blocks;
};

TEST(BeamBlocksTest, ThePromptIsSetAsideOnceAndTheRestForEachBeam) {
  const std::vector<TokenId> prompt(9, 1);  // 2 full blocks, of 5 in the end
  EXPECT_EQ(KvCache::BlocksOf(9, 17, /*num_beams=*/3, /*block_size=*/4), 2 + 3 * 3 + 3);
  EXPECT_EQ(KvCache::BlocksOf(9, 17, /*num_beams=*/1, /*block_size=*/4), 5);
  EXPECT_FALSE(Search(13, 4).Start(prompt, 3, 17));
  Search search(14, 4);
  ASSERT_TRUE(search.Start(prompt, 3, 17));
  EXPECT_EQ(search.table().num_reserved, 14);
  search.cache.Extend(&search.blocks, 9);
  EXPECT_EQ(search.cache.stats().blocks_used, 3) << "of beam 0 alone";
  search.cache.AddSpares(&search.blocks);
  search.cache.Reorder(&search.blocks, Parents{0, 0, 0}, 9);
  EXPECT_EQ(search.cache.stats().blocks_used, 6) << "2 shared, 3 open, 1 spare";
  search.cache.AddSpares(&search.blocks);
  EXPECT_EQ(search.cache.stats().blocks_used, 8);
  search.cache.Extend(&search.blocks, 17);
  EXPECT_EQ(search.cache.stats().blocks_used, 14);
  EXPECT_EQ(search.table().num_reserved, 0);
  search.cache.Free(&search.blocks);
  EXPECT_EQ(search.cache.stats().blocks_used, 0);
}

// Each beam's tokens are kept apart by the test; the cache's blocks must hold the same after any
// forks, with the copies done in any order.
TEST(BeamBlocksTest, RandomForksKeepEachBeamsTokensAndConserveBlocks) {
  constexpr int kBlockSize = 4;
  std::mt19937 random(7);
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 200; ++round) {
    const int num_beams = 2 + below(6);
    const int prompt_len = 1 + below(14);
    const int max_kv_tokens = prompt_len + below(30);
    const int64_t needed = KvCache::BlocksOf(prompt_len, max_kv_tokens, num_beams, kBlockSize);
    Search search(needed, kBlockSize);  // not a block more
    std::vector<TokenId> prompt(static_cast<size_t>(prompt_len));
    for (TokenId& token : prompt) token = below(1000);
    ASSERT_TRUE(search.Start(prompt, num_beams, max_kv_tokens));

    std::map<std::pair<BlockId, int>, TokenId> device;  // (block, row) -> token
    Beams tables{.tables = std::vector<std::vector<BlockId>>(static_cast<size_t>(num_beams)),
                 .spares = std::vector<BlockId>(static_cast<size_t>(num_beams), -1)};
    std::vector<std::vector<TokenId>> tokens(static_cast<size_t>(num_beams), prompt);
    for (int n = prompt_len; n <= max_kv_tokens; ++n) {
      const bool is_first = n == prompt_len;
      search.cache.Extend(&search.blocks, n);
      search.cache.AddSpares(&search.blocks);
      for (int j = 0; j < num_beams; ++j) {  // as a plan tells the device
        auto& table = tables.tables[static_cast<size_t>(j)];
        const auto& blocks = search.table().beam(j).blocks;
        table.insert(table.end(), blocks.begin() + std::ssize(table), blocks.end());
        table.resize(static_cast<size_t>(BlocksFor(n, kBlockSize)), -1);
        tables.spares[static_cast<size_t>(j)] = search.table().beam(j).spare;
        if (is_first && j > 0) continue;
        for (int p = is_first ? 0 : n - 1; p < n; ++p) {
          device[{table[static_cast<size_t>(p / kBlockSize)], p % kBlockSize}] =
              tokens[static_cast<size_t>(j)][static_cast<size_t>(p)];
        }
      }
      Parents parents;
      for (int j = 0; j < num_beams; ++j) parents.push_back(is_first ? 0 : below(num_beams));
      auto copies = tables.Reorder(parents, n, kBlockSize);
      std::shuffle(copies.begin(), copies.end(), random);
      for (const BlockCopy& copy : copies) {
        for (int row = 0; row < copy.num_tokens; ++row) {
          device[{copy.to, row}] = device.at({copy.from, row});
        }
      }
      search.cache.Reorder(&search.blocks, parents, n);
      const auto before = tokens;
      std::map<BlockId, int> num_holders;
      for (int j = 0; j < num_beams; ++j) {
        const auto beam = static_cast<size_t>(j);
        const BlockTable& table = search.table().beam(j);
        ASSERT_EQ(table.blocks, tables.tables[beam]) << "host and device agree";
        ASSERT_EQ(table.spare, tables.spares[beam]);
        tokens[beam] = before[static_cast<size_t>(parents[beam])];
        for (int p = 0; p < n; ++p) {
          const BlockId block = table.blocks[static_cast<size_t>(p / kBlockSize)];
          ASSERT_EQ((device.at({block, p % kBlockSize})), tokens[beam][static_cast<size_t>(p)]);
        }
        tokens[beam].push_back(below(1000));
        for (const BlockId block : table.blocks) ++num_holders[block];
        if (table.spare >= 0) ++num_holders[table.spare];
      }
      ASSERT_EQ(search.cache.stats().blocks_used, std::ssize(num_holders));
      if (n % kBlockSize != 0) {
        for (int j = 0; j < num_beams; ++j) {
          ASSERT_EQ(num_holders[search.table().beam(j).blocks.back()], 1)
              << "open blocks are private";
        }
      }
    }
    search.cache.Free(&search.blocks);
    ASSERT_EQ(search.cache.stats().blocks_used, 0);
  }
}

}  // namespace
}  // namespace inflight::kv_cache

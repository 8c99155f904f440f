// SPDX-License-Identifier: Apache-2.0
#include "executor/kv_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(KvSharesTest, EachWindowIsAGroupTheWidestFirst) {
  const auto groups = [](std::vector<int> windows) {
    return KvGroupsOf({.windows = std::move(windows), .num_sinks = 0}, /*num_layers=*/8);
  };
  EXPECT_THAT(groups({}), IsEmpty());
  EXPECT_THAT(groups({16}), IsEmpty()) << "one window for all";
  EXPECT_THAT(groups({16, 0}), ElementsAre(0, 16));
  EXPECT_THAT(groups({16, 32, 0, 16}), ElementsAre(0, 32, 16));
  EXPECT_THAT(groups({16, 32}), ElementsAre(32, 16));
  EXPECT_THAT(groups({1, 2, 3, 4, 5, 0}), ElementsAre(0, 5, 4, 3)) << "the narrowest in the last";
}

// A sequence of full length holds 64 blocks of the first group and 6 of the other.
TEST(KvSharesTest, AGroupBehindTheFirstHasWhatItsLayersCanUse) {
  const KvGroupPlan group = {.window = 100, .bytes_per_block = 3, .full_length_blocks = 6};
  const auto behind = [&](int64_t num_first, int max_batch_size) {
    return BlocksBehind(group, num_first, /*full_length_first=*/64, max_batch_size);
  };
  EXPECT_EQ(behind(64 * 8, 8), 6 * 8) << "all that eight sequences hold";
  EXPECT_EQ(behind(200, 8), 48) << "no more, though a quarter is 50";
  EXPECT_EQ(behind(190, 8), 48);  // 47.5, which is more than 190 * 6 / 64 = 17.8
  EXPECT_EQ(behind(20, 8), 6) << "one sequence: more than a quarter";
  EXPECT_EQ(behind(5, 8), 5) << "never more than the first group";
  EXPECT_EQ(behind(64, 1), 6);
  const KvGroupPlan wide = {.window = 100, .bytes_per_block = 3, .full_length_blocks = 40};
  EXPECT_EQ(BlocksBehind(wide, 100, 64, 8), 63) << "100 * 40 / 64 = 62.5";
}

TEST(KvSharesTest, MemoryIsSharedOutBetweenTheGroups) {
  const std::vector<KvGroupPlan> others = {
      {.window = 100, .bytes_per_block = 30, .full_length_blocks = 6}};
  const KvShares shares = {.first = {.bytes_per_block = 10, .full_length_blocks = 64},
                           .others = others,
                           .max_batch_size = 8};
  EXPECT_EQ(shares.BytesOf(64 * 8), 512U * 10 + 48 * 30);
  EXPECT_EQ(shares.BytesOf(20), 20U * 10 + 6 * 30);
  for (const int64_t blocks : {1, 5, 6, 20, 23, 24, 25, 190, 512, 600}) {
    const uint64_t bytes = shares.BytesOf(blocks);
    EXPECT_EQ(shares.BlocksIn(bytes, 1000), blocks);
    EXPECT_EQ(shares.BlocksIn(bytes - 1, 1000), blocks - 1);
  }
  EXPECT_EQ(shares.BlocksIn(39, 1000), 0) << "a block of each is 40 bytes";
  EXPECT_EQ(shares.BlocksIn(1 << 20, 7), 7);
}

// A stage without layers that see the whole text takes nothing for them.
TEST(KvSharesTest, AGroupWithoutLayersTakesNoBytes) {
  const std::vector<KvGroupPlan> others = {
      {.window = 100, .bytes_per_block = 30, .full_length_blocks = 6}};
  const KvShares shares = {
      .first = {.full_length_blocks = 64}, .others = others, .max_batch_size = 8};
  EXPECT_EQ(shares.BlocksIn(48 * 30, 1000), 1000) << "the other group has all that it can use";
  EXPECT_EQ(shares.BlocksIn(47 * 30, 1000), 47 * 4);
}

}  // namespace
}  // namespace inflight::executor

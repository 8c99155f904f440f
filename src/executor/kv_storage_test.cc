// SPDX-License-Identifier: Apache-2.0
#include "executor/kv_storage.h"

#include <gtest/gtest.h>

#include <cstring>

namespace inflight::executor {
namespace {

// Two layers of 3 blocks see all, three layers of 2 blocks have a window.
class KvStorageTest : public ::testing::Test {
 protected:
  static constexpr std::array<KvStorage::GroupSize, 2> kSizes = {
      {{.num_layers = 2, .num_blocks = 3}, {.num_layers = 3, .num_blocks = 2}}};

  KvStorageTest() {
    const ops::KvCacheView shape = {
        .dtype = DType::kF32, .num_layers = 5, .num_kv_heads = 2, .block_size = 16, .head_dim = 8};
    kv_ = *KvStorage::CreateGroups(shape, kSizes, *device_);
    uint8_t next = 0;
    for (int g = 0; g < 2; ++g)
      for (int layer = 0; layer < kv_.view(g).num_layers; ++layer)
        for (int block = 0; block < kv_.view(g).num_blocks; ++block)
          std::memset(kv_.view(g).Keys(layer, block, 0), ++next, kv_.view(g).block_bytes());
  }

  // The byte that all of a block are.
  int At(int group, int layer, int block) const {
    const ops::KvCacheView& kv = kv_.view(group);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(kv.Keys(layer, block, 0));
    for (size_t i = 1; i < kv.block_bytes(); ++i) EXPECT_EQ(bytes[i], bytes[0]);
    return bytes[0];
  }

  std::unique_ptr<Device> device_ = Device::Cpu(2);
  KvStorage kv_;
};

TEST_F(KvStorageTest, GroupsHaveMemoryOfTheirOwn) {
  int next = 0;
  for (int g = 0; g < 2; ++g)
    for (int layer = 0; layer < kSizes[static_cast<size_t>(g)].num_layers; ++layer)
      for (int block = 0; block < kSizes[static_cast<size_t>(g)].num_blocks; ++block)
        EXPECT_EQ(At(g, layer, block), ++next);
}

TEST_F(KvStorageTest, WholeBlocksAreCopiedInTheirGroup) {
  const std::vector<scheduler::HostBlockCopy> copies = {
      {.group = 1, .from = 0, .to = 1},
      {.group = 0, .from = 2, .to = 0},
      {.group = 2, .from = 0, .to = 1}};  // of nobody here
  kv_.CopyBlocks(copies, device_->cpu_pool());
  EXPECT_EQ(At(0, 0, 0), 3);
  EXPECT_EQ(At(0, 1, 0), 6);
  EXPECT_EQ(At(0, 0, 1), 2) << "of group 1 alone";
  EXPECT_EQ(At(1, 0, 1), 7);
  EXPECT_EQ(At(1, 2, 1), 11);
}

TEST_F(KvStorageTest, BeamsAndTreesMoveTokensOfOneGroup) {
  const kv_cache::BlockCopy copy = {.from = 0, .to = 1, .num_tokens = 16};
  kv_.Copy(/*group=*/1, {&copy, 1}, device_->cpu_pool());
  EXPECT_EQ(At(1, 1, 1), At(1, 1, 0));
  EXPECT_EQ(At(0, 1, 1), 5);
  std::vector<TokenMove> moves;
  for (int t = 0; t < 16; ++t) moves.push_back({.from = 2 * 16 + t, .to = t});
  kv_.Move(/*group=*/0, moves, device_->cpu_pool());
  EXPECT_EQ(At(0, 1, 0), 6);
  EXPECT_EQ(At(1, 1, 0), 9);
}

TEST_F(KvStorageTest, AGroupWithoutLayersIsNothing) {
  const std::array<KvStorage::GroupSize, 2> sizes = {
      {{.num_layers = 0, .num_blocks = 300}, {.num_layers = 1, .num_blocks = 2}}};
  ops::KvCacheView shape = kv_.view();
  shape.num_layers = 1;
  const auto kv = KvStorage::CreateGroups(shape, sizes, *device_);
  ASSERT_TRUE(kv.ok()) << kv.status().ToString();
  EXPECT_EQ(kv->view(0).data, kv->view(1).data);
  EXPECT_EQ(kv->view(0).num_blocks, 300);
}

}  // namespace
}  // namespace inflight::executor

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "kv_cache/kv_cache.h"

namespace inflight::kv_cache {
namespace {

// Counts what it is told; `takes_all`: it is told of a clearing at once.
struct Counting : KvObserver {
  explicit Counting(bool takes_all) : takes_all(takes_all) {}
  void OnStored(const StoredKvBlock&) noexcept override { ++num_held; }
  void OnRemoved(uint64_t, KvMedium) noexcept override { --num_held, ++num_removed; }
  bool OnCleared() noexcept override {
    ++num_cleared;
    if (takes_all) num_held = 0;
    return takes_all;
  }
  const bool takes_all;
  int num_held = 0, num_removed = 0, num_cleared = 0;
};

int RunPrompt(KvCache& cache, int first, int num_tokens) {
  std::vector<TokenId> tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), first);
  SequenceBlocks sequence;
  int num_cached = -1;
  EXPECT_TRUE(cache.Start({.tokens = tokens,
                           .max_kv_tokens = num_tokens,
                           .reserved_tokens = num_tokens,
                           .max_reused_blocks = 9},
                          &sequence, &num_cached));
  cache.Extend(&sequence, num_tokens);
  cache.Publish(&sequence, tokens, num_tokens);
  cache.Free(&sequence);
  return num_cached;
}

TEST(ForgetTest, NoBlockIsReusedThatWasKnownBeforeAndAllAreFree) {
  for (const bool takes_all : {true, false}) {
    const GroupConfig group{.num_blocks = 4, .block_size = 2, .num_host_blocks = 3};
    KvCache cache(std::span(&group, 1), /*enable_prefix_reuse=*/true);
    Counting counting(takes_all);
    cache.Observe(&counting);
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(RunPrompt(cache, 0, 6), 0);
      EXPECT_EQ(RunPrompt(cache, 0, 6), 4);
      EXPECT_EQ(RunPrompt(cache, 100, 6), 0);
      EXPECT_GT(cache.stats().host_blocks_used, 0);
      EXPECT_GT(counting.num_held, 4);
      cache.ClearCopies();
      cache.Forget();
      EXPECT_TRUE(cache.copies().empty());
      EXPECT_EQ(cache.stats().blocks_free, 4);
      EXPECT_EQ(cache.stats().host_blocks_used, 0);
      EXPECT_EQ(counting.num_held, 0);
      EXPECT_EQ(counting.num_cleared, round + 1);
    }
  }
}

}  // namespace
}  // namespace inflight::kv_cache

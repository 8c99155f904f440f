// SPDX-License-Identifier: Apache-2.0
#include "executor/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

using ::testing::HasSubstr;

// 2 layers of 2 KV heads of 32, float32: 2 * 2 * 2 * 32 * 4 = 1024 bytes a token, both K and V.
constexpr uint64_t kBytesPerToken = 1024;

model::ModelConfig Config() {
  model::ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.num_layers = 2;
  config.num_heads = 2;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 128;
  config.max_position_embeddings = 4096;
  return config;
}

constexpr model::EngineLimits kLimits{
    .max_batch_size = 4, .max_num_tokens = 256, .max_seq_len = 1024, .max_input_len = 1000};

Result<MemoryPlan> Plan(const ExecutorOptions& options, uint64_t free_bytes = uint64_t{1} << 34) {
  return PlanMemory(Config(), kLimits, /*weight_bytes=*/0, /*weights_are_taken=*/true, options,
                    free_bytes);
}

TEST(MemoryPlanTest, FractionOfWhatIsLeftAfterTheWorkspaceBecomesBlocks) {
  const auto roomy = Plan({});
  ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
  EXPECT_EQ(roomy->kv_bytes_per_block, 64 * kBytesPerToken);
  EXPECT_EQ(roomy->num_blocks, 4 * 16) << "never more than the whole batch can use";
  const uint64_t left = 40 * 64 * kBytesPerToken;
  ExecutorOptions half;
  half.kv_cache_free_memory_fraction = 0.5;
  EXPECT_EQ(Plan(half, roomy->workspace_bytes + left)->num_blocks, 20);
}

TEST(MemoryPlanTest, MaxTokensIsACapRoundedUpToBlocks) {
  EXPECT_EQ(Plan({.max_kv_tokens = 1500})->num_blocks, 24);  // 23.4
  EXPECT_EQ(Plan({.max_kv_tokens = 1500})->max_seq_len, 1024);
  EXPECT_EQ(Plan({.max_kv_tokens = 1'000'000})->num_blocks, 64) << "the smaller one counts";
}

TEST(MemoryPlanTest, LengthIsLoweredToWhatTheBlocksHold) {
  const auto plan = Plan({.max_kv_tokens = 300});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->num_blocks, 5);
  EXPECT_EQ(plan->max_seq_len, 320);
  EXPECT_EQ(plan->max_input_len, 319);
  EXPECT_EQ(plan->engine_max_seq_len, 1024);
  EXPECT_THAT(plan->ToString(), HasSubstr("max_seq_len lowered from 1024 to 320"));
}

TEST(MemoryPlanTest, NotOneBlockIsAnError) {
  const Status status = Plan({}, Plan({})->workspace_bytes + 1000).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("KV cache: not one block of 64 tokens (0.1 MiB)"));
  EXPECT_THAT(status.message(), HasSubstr("raise kv_cache_free_memory_fraction"));
}

TEST(MemoryPlanTest, OptionsOutOfRangeAreNamed) {
  ExecutorOptions options;
  options.kv_cache_free_memory_fraction = 1.0;
  EXPECT_EQ(Plan(options).status().message(),
            "kv_cache_free_memory_fraction: got 1, must be above 0 and below 1");
  EXPECT_THAT(Plan({.max_kv_tokens = 0}).status().message(), HasSubstr("max_kv_tokens: got 0"));
}

}  // namespace
}  // namespace inflight::executor

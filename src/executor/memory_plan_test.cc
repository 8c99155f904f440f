// SPDX-License-Identifier: Apache-2.0
#include "executor/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

using ::testing::ElementsAre;
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
  return PlanMemory(Config(), kLimits, DeviceKind::kCpu, /*weight_bytes=*/0,
                    /*weights_are_taken=*/true, options, free_bytes);
}

uint64_t Others(const MemoryPlan& plan) {
  return plan.workspace_bytes + plan.step_input_bytes + plan.sampler_bytes;
}

TEST(MemoryPlanTest, SequencesMayBeShorterThanTheEnginesButNotLonger) {
  ExecutorOptions options;
  options.max_seq_len = 128;
  const auto plan = Plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->max_seq_len, 128);
  EXPECT_EQ(plan->max_input_len, 128);
  EXPECT_EQ(plan->num_blocks, 4 * 2) << "four rows of two blocks";
  options.max_seq_len = 1025;
  EXPECT_THAT(Plan(options).status().message(), HasSubstr("max_seq_len: got 1025, the engine"));
}

// Asked for, it is taken before the KV cache gets its fraction; else the plan is as without.
TEST(MemoryPlanTest, MemoryOfAdaptersIsSetAsideWhereItIsAskedFor) {
  const auto none = Plan({});
  EXPECT_FALSE(none->books_adapters);
  EXPECT_GT(none->adapter_bytes, uint64_t{1} << 29);
  EXPECT_LT(none->adapter_bytes, uint64_t{1} << 30) << "a twentieth of 16 GiB";
  const uint64_t left = 40 * 64 * kBytesPerToken;
  ExecutorOptions options;
  options.kv_cache_free_memory_fraction = 0.5;
  options.adapter_host_bytes = left / 2;
  const auto some = Plan(options, Others(*none) + left);
  ASSERT_TRUE(some.ok()) << some.status().ToString();
  EXPECT_TRUE(some->books_adapters);
  EXPECT_EQ(some->adapter_bytes, left / 2);
  EXPECT_EQ(some->num_blocks, 10);
  EXPECT_THAT(some->ToString(), HasSubstr("adapters   1.2 MiB for those of requests"));
  options.adapter_host_bytes.reset();
  options.adapter_memory_fraction = 0.25;
  const auto share = Plan(options, Others(*none) + left);
  EXPECT_EQ(share->adapter_bytes, left / 4);
  EXPECT_EQ(share->num_blocks, 15);
}

// There the tables that kernels read are part of the share, and memory of the host counts for
// nothing.
TEST(MemoryPlanTest, OnAGpuAShareIsSetAsideForAdaptersAndTheirTables) {
  model::ModelConfig config = Config();
  config.dtype = DType::kBF16;
  const auto plan_of = [&](const ExecutorOptions& options, uint64_t free_bytes) {
    return PlanMemory(config, kLimits, DeviceKind::kCuda, /*weight_bytes=*/0,
                      /*weights_are_taken=*/true, options, free_bytes);
  };
  ExecutorOptions options;
  options.adapter_host_bytes = 1000;
  const auto none = plan_of(options, uint64_t{1} << 34);
  ASSERT_TRUE(none.ok()) << none.status().ToString();
  EXPECT_FALSE(none->books_adapters);
  EXPECT_GT(none->adapter_bytes, uint64_t{1} << 29) << "a twentieth of 16 GiB, without the tables";
  options.adapter_memory_fraction = 0.25;
  const uint64_t others = none->total_bytes() - none->kv_bytes() + none->kv_bytes_per_block;
  const uint64_t left = uint64_t{1} << 30;
  const auto some = plan_of(options, others + left);
  ASSERT_TRUE(some.ok()) << some.status().ToString();
  EXPECT_EQ(some->booked_adapter_bytes(), left / 4);
  EXPECT_GT(some->adapter_table_bytes, 0U);
  EXPECT_EQ(some->total_bytes() - some->kv_bytes() + some->kv_bytes_per_block, others + left / 4);
  options.max_adapter_rank = 256;
  options.adapter_memory_fraction = 1e-6;
  EXPECT_THAT(plan_of(options, others + left).status().message(),
              HasSubstr("lora_cache_gpu_memory_fraction: Not enough space allocated to device LoRA "
                        "cache to hold 1 max sized LoRA"));
}

// Rank 8 of 64 -> 192 for q, k, v together, the same apart, 64 -> 64, and three of 64 and 128: each
// factor has 16 numbers more.
TEST(MemoryPlanTest, ACacheOfLessThanOneAdapterIsRefused) {
  ExecutorOptions options;
  options.max_adapter_rank = 8;
  options.adapter_host_bytes = 1000;
  const Status status = Plan(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("lora_cache_host_memory_bytes: Not enough space allocated to host LoRA "
                        "cache to hold 1 max sized LoRA"));
  const uint64_t factors = (64 + 192) + 3 * (64 + 64) + (64 + 64) + 3 * (64 + 128);
  options.adapter_host_bytes = 2 * (8 * factors + 16 * 16) * sizeof(float);
  EXPECT_TRUE(Plan(options).ok());
  --*options.adapter_host_bytes;
  EXPECT_FALSE(Plan(options).ok());
  options.adapter_memory_fraction = 1.0;
  EXPECT_EQ(Plan(options).status().message(),
            "lora_cache_gpu_memory_fraction: got 1, must be in [0, 1)");
}

TEST(MemoryPlanTest, FractionOfWhatIsLeftAfterTheWorkspaceBecomesBlocks) {
  const auto roomy = Plan({});
  ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
  EXPECT_EQ(roomy->kv_bytes_per_block, 64 * kBytesPerToken);
  EXPECT_EQ(roomy->num_blocks, 4 * 16) << "never more than the whole batch can use";
  const uint64_t left = 40 * 64 * kBytesPerToken;
  ExecutorOptions half;
  half.kv_cache_free_memory_fraction = 0.5;
  EXPECT_EQ(Plan(half, Others(*roomy) + left)->num_blocks, 20);
  EXPECT_EQ(Plan(half, Others(*roomy) + left + 2 * kBytesPerToken)->num_blocks, 21)
      << "1281 tokens, rounded up";
  ExecutorOptions nearly_all;
  nearly_all.kv_cache_free_memory_fraction = 0.999;
  EXPECT_EQ(Plan(nearly_all, Others(*roomy) + left - kBytesPerToken)->num_blocks, 39)
      << "2556 tokens, but the 40th block is not there";
}

TEST(MemoryPlanTest, MaxTokensIsACapRoundedUpToBlocks) {
  EXPECT_EQ(Plan({.max_kv_tokens = 1500})->num_blocks, 24);  // 23.4
  EXPECT_EQ(Plan({.max_kv_tokens = 1500})->max_seq_len, 1024);
  EXPECT_FALSE(Plan({.max_kv_tokens = 1500})->max_kv_tokens_exceed_memory);
  EXPECT_EQ(Plan({.max_kv_tokens = 1'000'000})->num_blocks, 64) << "all that the batch can use";
  const auto bound = Plan({.max_kv_tokens = 1'000'000}, Others(*Plan({})) + (3 << 20));
  EXPECT_EQ(bound->num_blocks, 44) << "the smaller one counts: 2764 tokens";
  EXPECT_TRUE(bound->max_kv_tokens_exceed_memory);
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

TEST(MemoryPlanTest, OnAGpuGraphsSpareSlotsAndTheScratchBlockAreTaken) {
  model::ModelConfig config = Config();
  config.dtype = DType::kBF16;
  const auto plan_of = [&](uint64_t free_bytes) {
    return PlanMemory(config, kLimits, DeviceKind::kCuda, /*weight_bytes=*/1000,
                      /*weights_are_taken=*/true, {}, free_bytes);
  };
  const auto roomy = plan_of(uint64_t{1} << 34);
  ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
  EXPECT_EQ(roomy->num_blocks, 4 * 16) << "the scratch block is no sequence's";
  EXPECT_EQ(roomy->kv_bytes(), 65 * roomy->kv_bytes_per_block);
  EXPECT_GT(roomy->max_slots, roomy->max_batch_size);
  EXPECT_GT(roomy->graph_bytes, 0U);
  const uint64_t others = roomy->total_bytes() - roomy->kv_bytes() - roomy->weight_bytes;
  EXPECT_EQ(plan_of(others + 2 * roomy->kv_bytes_per_block)->num_blocks, 1);
  const Status no_room = plan_of(others + roomy->kv_bytes_per_block).status();
  EXPECT_EQ(no_room.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(no_room.message(), HasSubstr("KV cache: not one block of 64 tokens (0.1 MiB) fits"));
  EXPECT_THAT(no_room.message(), HasSubstr("(max_num_tokens 256), kernels "));
  EXPECT_THAT(no_room.message(), HasSubstr(", graphs 286.1 MiB, inputs "));
  EXPECT_THAT(no_room.message(),
              HasSubstr("(max_batch_size 4). Lower max_num_tokens, max_batch_size or block_size, "
                        "raise kv_cache_free_memory_fraction, or free memory"));
  EXPECT_THAT(roomy->ToString(), HasSubstr("graphs     286.1 MiB kept free"));
}

TEST(MemoryPlanTest, TheHostPoolOfAGpuIsPinnedMemory) {
  model::ModelConfig config = Config();
  config.dtype = DType::kBF16;
  const auto plan_of = [&](DeviceKind device, uint64_t host_bytes) {
    return *PlanMemory(config, kLimits, device, /*weight_bytes=*/1000, /*weights_are_taken=*/true,
                       {.kv_cache_host_bytes = host_bytes}, uint64_t{1} << 34);
  };
  const MemoryPlan none = plan_of(DeviceKind::kCuda, 0);
  const MemoryPlan pool = plan_of(DeviceKind::kCuda, 5 * none.kv_bytes_per_block + 1);
  EXPECT_EQ(pool.num_host_blocks, 5);
  EXPECT_EQ(pool.host_pool_bytes(), 5 * none.kv_bytes_per_block);
  EXPECT_EQ(pool.kv_bytes(), none.kv_bytes()) << "of the GPU";
  EXPECT_THAT(pool.ToString(), HasSubstr("5 blocks for what the KV cache gives up, in pinned"));
  const uint64_t cpu_block_bytes = plan_of(DeviceKind::kCpu, 0).kv_bytes_per_block;
  EXPECT_EQ(none.kv_bytes_per_block, cpu_block_bytes * 64 / static_cast<uint64_t>(config.head_dim))
      << "heads are stored in rows of 64";
  const MemoryPlan cpu = plan_of(DeviceKind::kCpu, 5 * cpu_block_bytes);
  EXPECT_EQ(cpu.kv_bytes(), cpu.kv_bytes_per_block * (static_cast<uint64_t>(cpu.num_blocks) + 5));
}

// From the first key that a token sees to the last one that the steps in flight compute.
TEST(MemoryPlanTest, AWindowBoundsTheBlocksOfASequence) {
  ExecutorOptions options;
  options.attention_windows = {200};
  options.sink_tokens = 10;
  const auto blocks_on = [&](DeviceKind device) {
    const auto plan = PlanMemory(Config(), kLimits, device, /*weight_bytes=*/0,
                                 /*weights_are_taken=*/true, options, uint64_t{1} << 34);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->window(), 200);
    return plan->full_length_blocks;
  };
  // A block of sinks; 189 tokens before, chunks of 256, wherever blocks of 64 begin.
  EXPECT_EQ(blocks_on(DeviceKind::kCpu), 1 + 8);
  EXPECT_EQ(blocks_on(DeviceKind::kCuda), 1 + 12) << "two chunks are in flight";
}

// A model's own window is the default of its layers; an option can only narrow it.
TEST(MemoryPlanTest, AModelsOwnWindowsAreThereWithoutAnOption) {
  model::ModelConfig config = Config();
  config.sliding_window = 200;
  const auto windows_of = [&](std::vector<int> asked, int sinks = 0) {
    const auto plan = PlanMemory(config, kLimits, DeviceKind::kCpu, /*weight_bytes=*/0,
                                 /*weights_are_taken=*/true,
                                 {.attention_windows = std::move(asked), .sink_tokens = sinks},
                                 uint64_t{1} << 34);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return std::vector<ops::SlidingWindow>{plan->windows.Of(0), plan->windows.Of(1)};
  };
  const ops::SlidingWindow own = {.window = 200, .num_sinks = 0};
  EXPECT_THAT(windows_of({}), ElementsAre(own, own));
  EXPECT_THAT(windows_of({0, 300}), ElementsAre(own, own));
  EXPECT_THAT(windows_of({100, 1000}, 4),
              ElementsAre(ops::SlidingWindow{100, 4}, ops::SlidingWindow{200, 4}));
  config.sliding_layers = {false, true};
  EXPECT_THAT(windows_of({}), ElementsAre(ops::SlidingWindow{}, own));
  EXPECT_THAT(windows_of({100}),
              ElementsAre(ops::SlidingWindow{100, 0}, ops::SlidingWindow{100, 0}));
  config.sliding_window = 2000;  // more than a sequence has
  EXPECT_THAT(windows_of({}), ElementsAre(ops::SlidingWindow{}, ops::SlidingWindow{}));
}

// One layer of Config that sees all and one that sees 100 tokens, of 512 bytes a token each. A
// sequence of full length has 16 blocks of 64, of the other group 7: 99 tokens before and chunks of
// 256, wherever blocks begin.
model::ModelConfig AlternatingConfig() {
  model::ModelConfig config = Config();
  config.sliding_window = 100;
  config.sliding_layers = {false, true};
  return config;
}
constexpr uint64_t kLayerBlockBytes = 64 * kBytesPerToken / 2;

Result<MemoryPlan> PlanAlternating(const ExecutorOptions& options,
                                   uint64_t free_bytes = uint64_t{1} << 34,
                                   const model::ModelConfig& config = AlternatingConfig()) {
  return PlanMemory(config, kLimits, DeviceKind::kCpu, /*weight_bytes=*/0,
                    /*weights_are_taken=*/true, options, free_bytes);
}

TEST(MemoryPlanTest, LayersOfDifferentWindowsHavePoolsOfTheirOwn) {
  const auto roomy = PlanAlternating({});
  ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
  EXPECT_THAT(roomy->windows.groups, ElementsAre(0, 100));
  EXPECT_EQ(roomy->window(), 0);
  EXPECT_EQ(roomy->kv_bytes_per_block, kLayerBlockBytes);
  EXPECT_EQ(roomy->num_blocks, 4 * 16);
  ASSERT_EQ(roomy->other_groups.size(), 1U);
  const KvGroupPlan& other = roomy->other_groups[0];
  EXPECT_EQ(other.window, 100);
  EXPECT_EQ(other.bytes_per_block, kLayerBlockBytes);
  EXPECT_EQ(other.full_length_blocks, 7);
  EXPECT_EQ(other.num_blocks, 4 * 7) << "all that four sequences hold";
  EXPECT_EQ(roomy->kv_bytes(), (4 * 16 + 4 * 7) * kLayerBlockBytes);
  EXPECT_EQ(roomy->full_length_sequences(), 4);
  EXPECT_THAT(roomy->ToString(), HasSubstr("64 blocks of 64 tokens (0.0 MiB each), 4096 tokens"));
  EXPECT_THAT(roomy->ToString(),
              HasSubstr("and 28 blocks for layers that see 100 tokens (0.0 MiB each)"));

  const BackendInfo info = BackendInfoOf(*roomy, 100, 1);
  ASSERT_EQ(info.kv_groups.size(), 2U);
  EXPECT_EQ(info.kv_groups[0].window, 0);
  EXPECT_EQ(info.kv_groups[1].window, 100);
  EXPECT_EQ(info.kv_groups[1].num_blocks, 28);
  EXPECT_EQ(LimitsOf(info).num_blocks, 64);
  EXPECT_EQ(LimitsOf(info).least_blocks, 28);

  // 20 * 7 / 16 = 8.75
  const auto some = PlanAlternating({.max_kv_tokens = 20 * 64});
  EXPECT_EQ(some->num_blocks, 20);
  EXPECT_EQ(some->other_groups[0].num_blocks, 9);
  EXPECT_EQ(some->full_length_sequences(), 1);
  const ExecutorOptions half = {.kv_cache_free_memory_fraction = 0.5};
  EXPECT_EQ(PlanAlternating(half, Others(*roomy) + 2 * 29 * kLayerBlockBytes)->num_blocks, 20);
  EXPECT_EQ(PlanAlternating(half, Others(*roomy) + 2 * 29 * kLayerBlockBytes - 2)->num_blocks, 19);
  // A block of the host pool has both layers.
  EXPECT_EQ(PlanAlternating({.kv_cache_host_bytes = 11 * kLayerBlockBytes})->num_host_blocks, 5);
}

// One sequence of full length in one pool would take 16 blocks of both layers, 1 MiB.
TEST(MemoryPlanTest, ALongTextFitsWhereItsWholeTextInEachLayerWouldNot) {
  const uint64_t left = 800 * 1024;
  const ExecutorOptions most = {.kv_cache_free_memory_fraction = 0.95};
  const auto groups = PlanAlternating(most, Others(*PlanAlternating({})) + left);
  ASSERT_TRUE(groups.ok()) << groups.status().ToString();
  EXPECT_EQ(groups->max_seq_len, 1024);
  EXPECT_EQ(groups->num_blocks, 16);
  EXPECT_EQ(groups->other_groups[0].num_blocks, 7);
  const auto one = Plan(most, Others(*Plan({})) + left);
  EXPECT_EQ(one->num_blocks, 12);  // 11.9
  EXPECT_EQ(one->max_seq_len, 12 * 64);
}

TEST(MemoryPlanTest, AWindowThatSavesNothingIsNoGroup) {
  model::ModelConfig config = AlternatingConfig();
  config.sliding_window = 900;  // 899 before and 256: more than 1024 tokens
  const auto plan = PlanAlternating({}, uint64_t{1} << 34, config);
  EXPECT_TRUE(plan->windows.groups.empty());
  EXPECT_TRUE(plan->other_groups.empty());
  EXPECT_EQ(plan->windows.Of(1).window, 900);
  EXPECT_EQ(plan->kv_bytes_per_block, 64 * kBytesPerToken);
  EXPECT_EQ(plan->num_blocks, 64);
  EXPECT_EQ(LimitsOf(BackendInfoOf(*plan, 100, 1)).least_blocks, 0);
}

// Stages have the model's groups, and as many blocks of each, whatever their layers are.
TEST(MemoryPlanTest, RanksHaveTheSameGroups) {
  const auto leaders = PlanAlternating({.max_kv_tokens = 20 * 64});
  model::ModelConfig config = AlternatingConfig();
  config.num_layers = 1;
  config.part = {.pp_rank = 1, .pp_size = 2, .first_layer = 1, .num_layers = 2};
  auto second = PlanAlternating({.max_kv_tokens = 20 * 64}, uint64_t{1} << 34, config);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(second->windows.groups, leaders->windows.groups);
  EXPECT_EQ(second->kv_bytes_per_block, 0U);
  EXPECT_EQ(second->num_blocks, 20);
  second->TakeBlocks(*leaders, config);
  EXPECT_EQ(second->other_groups[0].num_blocks, 9);
  EXPECT_EQ(second->kv_bytes(), 9 * kLayerBlockBytes);
}

TEST(MemoryPlanTest, DraftsNeedRowsOfLogits) {
  EXPECT_EQ(Plan({})->max_draft_len, 0);
  EXPECT_EQ(Plan({})->max_logits(), 4);
  EXPECT_EQ(Plan({.drafts = DraftSource::kNgram})->max_draft_len, 4) << "where nobody says";
  const auto own = Plan({.drafts = DraftSource::kNgram, .max_draft_len = 7});
  EXPECT_EQ(own->max_logits(), 4 * 8);
  // Of 100 float32, in lines of 64 bytes.
  EXPECT_EQ(own->workspace_bytes - Plan({})->workspace_bytes, (4 * 8 - 4) * 100 * sizeof(float));
  EXPECT_EQ(BackendInfoOf(*own, 100, 1).max_tokens_per_row, 8);
  EXPECT_TRUE(BackendInfoOf(*own, 100, 1).makes_drafts);
  EXPECT_EQ(Plan({.drafts = DraftSource::kSuffix, .max_draft_len = 7})->workspace_bytes -
                own->workspace_bytes,
            MemoryPlan::kKeptOutputTokens * uint64_t{20})
      << "of outputs that ended";
  const auto clients = Plan({.max_draft_len = 7});
  EXPECT_EQ(clients->max_draft_len, 7);
  EXPECT_FALSE(BackendInfoOf(*clients, 100, 1).makes_drafts);
  EXPECT_EQ(Plan({.max_num_tokens = 10, .max_draft_len = 7})->max_logits(), 10);

  EXPECT_EQ(Plan({.block_size = 16, .max_draft_len = 16}).status().message(),
            "max_draft_len: got 16, must be in [0, 16), below the block size");
  EXPECT_EQ(Plan({.drafts = DraftSource::kNgram, .max_draft_len = 0}).status().message(),
            "max_draft_len: got 0, must be in [1, 64), below the block size");
}

TEST(MemoryPlanTest, AHeadOfEagleHasKeysInEachBlock) {
  model::EagleConfig head;
  head.layer = Config();
  head.layer.num_layers = 1;
  head.draft_vocab_size = head.layer.vocab_size;
  const auto plan = [&](const ExecutorOptions& options, bool has_head = true) {
    model::EngineLimits limits = kLimits;
    limits.max_num_tokens = 4096;
    return PlanMemory(Config(), limits, DeviceKind::kCpu, 0, true, options, uint64_t{1} << 34,
                      {.eagle = has_head ? &head : nullptr});
  };
  EXPECT_EQ(plan({})->drafts, DraftSource::kEagle);
  EXPECT_EQ(plan({})->max_draft_len, 63);
  EXPECT_EQ(plan({.block_size = 16})->max_draft_len, 15) << "the default is cut";
  EXPECT_EQ(plan({.max_draft_len = 20})->draft_tree->size(), 20);
  EXPECT_EQ(plan({.max_draft_len = 0})->drafts, DraftSource::kNone);
  const auto without = plan({.drafts = DraftSource::kNone});
  const auto layers = static_cast<uint64_t>(Config().num_layers);
  EXPECT_EQ(plan({})->kv_bytes_per_block, without->kv_bytes_per_block / layers * (layers + 1));
  const auto bytes = [&] { return plan({})->workspace_bytes - without->workspace_bytes; };
  const uint64_t of_version_1 = bytes();
  EXPECT_GT(of_version_1, 0);
  head.version = 3;
  head.target_layers = {0, 1};
  // What enters two layers, of each token of a step.
  EXPECT_GE(bytes(), of_version_1 + uint64_t{4096} * 2 *
                                        static_cast<uint64_t>(head.layer.hidden_size) *
                                        sizeof(float));
  EXPECT_THAT(std::string(plan({.drafts = DraftSource::kEagle}, false).status().message()),
              HasSubstr("speculation: got eagle, there is no head of EAGLE"));
}

// Rows of 32 nodes in int8, with a scale and a sum each.
TEST(MemoryPlanTest, AHeadOfEagleRoundsWhatAnLmHeadOfIntegersReads) {
  model::EagleConfig head;
  head.layer = Config();
  head.layer.num_layers = 1;
  head.draft_vocab_size = head.layer.vocab_size;
  model::ModelConfig config = Config();
  config.quant_algo = model::QuantAlgo::kW8A16;
  const auto bytes = [&] {
    const auto plan = [&](DraftSource drafts) {
      return PlanMemory(config, kLimits, DeviceKind::kCpu, 0, true, {.drafts = drafts},
                        uint64_t{1} << 34, {.eagle = &head});
    };
    return plan(DraftSource::kEagle)->workspace_bytes - plan(DraftSource::kNone)->workspace_bytes;
  };
  const uint64_t of_floats = bytes();
  config.quantize_lm_head = true;
  const auto row_bytes = static_cast<uint64_t>(((config.hidden_size + 63) / 64 | 1) * 64) + 8;
  EXPECT_EQ(bytes() - of_floats, (32 * row_bytes + 63) / 64 * 64);
  head.version = 3;  // has an lm_head of its own
  head.target_layers = {0, 1};
  const uint64_t with = bytes();
  config.quantize_lm_head = false;
  EXPECT_EQ(bytes(), with);
}

TEST(MemoryPlanTest, HeadsOfAModelProposeTreesUnlessToldOtherwise) {
  model::ModelConfig config = Config();
  config.num_medusa_heads = 4;
  const auto plan = [&](const ExecutorOptions& options, DeviceKind device = DeviceKind::kCpu) {
    model::EngineLimits limits = kLimits;
    limits.max_num_tokens = 4096;
    if (device == DeviceKind::kCuda) config.dtype = DType::kBF16;
    return PlanMemory(config, limits, device, 0, true, options, uint64_t{1} << 34);
  };
  EXPECT_EQ(plan({})->drafts, DraftSource::kMedusa);
  EXPECT_EQ(plan({})->max_draft_len, 63);
  EXPECT_EQ(plan({})->max_logits(), 4 * 64);
  EXPECT_EQ(plan({.block_size = 16})->max_draft_len, 15) << "the default is cut";
  EXPECT_EQ(plan({.max_draft_len = 20})->draft_tree->size(), 20);
  EXPECT_EQ(plan({.drafts = DraftSource::kNone})->max_draft_len, 0);
  EXPECT_EQ(plan({.max_draft_len = 0})->drafts, DraftSource::kNone);
  EXPECT_EQ(plan({.drafts = DraftSource::kNgram})->draft_tree, std::nullopt);
  const auto own = plan({.medusa_choices = {{1}, {0}}});
  EXPECT_EQ(own->max_draft_len, 2);
  EXPECT_EQ((*own->draft_tree)[0].choice, 1);

  const auto error = [&](const ExecutorOptions& options, DeviceKind device = DeviceKind::kCpu) {
    return std::string(plan(options, device).status().message());
  };
  EXPECT_THAT(error({.medusa_choices = {{0, 0}}}), HasSubstr("medusa_choices: got {0, 0}, which"));
  EXPECT_EQ(error({.max_draft_len = 2, .medusa_choices = {{0}, {1}, {2}}}),
            "medusa_choices: got 3 nodes, at most 2 fit max_draft_len and the KV cache's blocks of "
            "64 tokens; leave nodes out, or raise the smaller of both");
  EXPECT_EQ(error({.medusa_choices = {{100}}}),
            "medusa_choices: got choice 100, the vocabulary has 100 tokens");
  EXPECT_THAT(error({.drafts = DraftSource::kNgram, .medusa_choices = {{0}}}),
              HasSubstr("medusa_choices: drafts do not come from the model's Medusa heads"));
  EXPECT_EQ(plan({}, DeviceKind::kCuda)->drafts, DraftSource::kMedusa);
  config.part.tp_size = 2;
  EXPECT_EQ(error({}, DeviceKind::kCuda), "");
  config.part = {};
  model::ModelConfig wide = config;
  wide.dtype = DType::kF32;
  EXPECT_THAT(
      std::string(PlanMemory(wide, kLimits, DeviceKind::kCuda, 0, true, {}, uint64_t{1} << 34)
                      .status()
                      .message()),
      HasSubstr("speculation: GPUs compute Medusa's heads in bfloat16 and float16"));
  const auto on_gpu = [&](DraftSource drafts) {
    return plan({.drafts = drafts}, DeviceKind::kCuda)->workspace_bytes;
  };
  EXPECT_EQ(on_gpu(DraftSource::kSuffix), on_gpu(DraftSource::kNgram))
      << "outputs that ended stay in the host's memory";
  config.num_medusa_heads = 0;
  EXPECT_THAT(error({.medusa_choices = {{0}}}),
              HasSubstr("medusa_choices: the model has no Medusa heads"));
  EXPECT_THAT(error({.drafts = DraftSource::kMedusa}),
              HasSubstr("speculation: got medusa, the model has no Medusa heads"));
}

// The stages before the one that has the heads judge the same trees, and have no memory of heads.
TEST(MemoryPlanTest, AllStagesOnGpusJudgeTheTreesOfTheLastOne) {
  model::ModelConfig config = Config();
  config.dtype = DType::kBF16;
  model::EngineLimits limits = kLimits;
  limits.max_num_tokens = 4096;
  model::EagleConfig head;
  head.layer = Config();
  head.layer.num_layers = 1;
  head.layer.dtype = DType::kBF16;
  head.draft_vocab_size = head.layer.vocab_size;
  const auto plan = [&](int stage, const ExecutorOptions& options, bool has_eagle = false,
                        DeviceKind device = DeviceKind::kCuda) {
    config.part = {.pp_rank = stage, .pp_size = 2, .first_layer = 2 * stage, .num_layers = 4};
    return PlanMemory(config, limits, device, 0, true, options, uint64_t{1} << 34,
                      {.eagle = has_eagle ? &head : nullptr});
  };
  const ExecutorOptions eagle = {.drafts = DraftSource::kEagle};
  const auto front = plan(0, eagle);
  ASSERT_TRUE(front.ok()) << front.status().ToString();
  const auto last = plan(1, eagle, /*has_eagle=*/true);
  ASSERT_TRUE(last.ok()) << last.status().ToString();
  for (const MemoryPlan* each : {&*front, &*last}) {
    EXPECT_EQ(each->draft_tree->size(), 63);
    EXPECT_EQ(each->max_draft_len, 63);
    EXPECT_EQ(each->num_stages, 2);
    EXPECT_EQ(BackendInfoOf(*each, 100, 1).depth, 2);
    EXPECT_FALSE(BackendInfoOf(*each, 100, 1).looks_ahead);
  }
  const uint64_t without = plan(0, {})->kv_bytes_per_block;
  EXPECT_EQ(front->kv_bytes_per_block, without);
  EXPECT_EQ(last->kv_bytes_per_block, without + without / 2) << "of a third layer";
  EXPECT_THAT(std::string(plan(1, eagle).status().message()),
              HasSubstr("speculation: got eagle, there is no head of EAGLE"));
  config.num_medusa_heads = 4;
  for (const int stage : {0, 1}) {
    EXPECT_EQ(plan(stage, {})->drafts, DraftSource::kMedusa);
    EXPECT_EQ(plan(stage, {})->num_stages, 2);
  }
  EXPECT_EQ(plan(0, {}, false, DeviceKind::kCpu)->num_stages, 1) << "one step is in flight";
}

TEST(MemoryPlanTest, AGpuVerifiesAsManyDraftsAsItHasRowsFor) {
  const auto plan = [](int batch_size, const ExecutorOptions& options) {
    model::ModelConfig config = Config();
    config.dtype = DType::kBF16;
    model::EngineLimits limits = kLimits;
    limits.max_batch_size = batch_size;
    limits.max_num_tokens = 4096;
    return PlanMemory(config, limits, DeviceKind::kCuda, 0, true, options, uint64_t{1} << 34);
  };
  const auto info = [&](int batch_size, const ExecutorOptions& options) {
    return BackendInfoOf(*plan(batch_size, options), 100, 1);
  };
  EXPECT_EQ(info(16, {.max_draft_len = 3}).max_drafts, 48);
  EXPECT_EQ(info(16, {.max_draft_len = 63}).max_drafts, 512 - 16);
  EXPECT_EQ(info(600, {.max_draft_len = 3}).max_drafts, 0);
}

TEST(MemoryPlanTest, NotOneBlockIsAnError) {
  const Status status = Plan({}, Others(*Plan({})) + 1000).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("KV cache: not one block of 64 tokens (0.1 MiB)"));
  EXPECT_THAT(status.message(), HasSubstr(" free take: workspace "));
  EXPECT_THAT(status.message(), HasSubstr("raise kv_cache_free_memory_fraction"));
}

TEST(MemoryPlanTest, OptionsOutOfRangeAreNamed) {
  ExecutorOptions options;
  options.kv_cache_free_memory_fraction = 1.0;
  EXPECT_EQ(Plan(options).status().message(),
            "kv_cache_free_memory_fraction: Invalid freeMemFraction, freeMemFraction (1.000000) "
            "must be smaller than 1.0f");
  options.kv_cache_free_memory_fraction = 0;
  EXPECT_EQ(Plan(options).status().message(),
            "kv_cache_free_memory_fraction: got 0, must be above 0");
  EXPECT_THAT(Plan({.max_kv_tokens = 0}).status().message(), HasSubstr("max_kv_tokens: got 0"));
}

}  // namespace
}  // namespace inflight::executor

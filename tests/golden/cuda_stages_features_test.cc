// SPDX-License-Identifier: Apache-2.0
// What stages on GPUs do beside sampling: adapters, guides, tables of prompts, drafts of clients,
// streamed weights, a pool of blocks on the host; what they take; and what they refuse.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "cuda_ranks_fixture.h"
#include "decoding/list_guide.h"
#include "guide_ways.h"
#include "inflight/adapter.h"
#include "inflight/prompt_table.h"

namespace inflight::golden {
namespace {

constexpr const char* kDemoModel = INFLIGHT_DEMO_MODEL;

class CudaStagesFeaturesTest : public DemoRanksTest {
 protected:
  std::unique_ptr<Executor> Staged(const std::filesystem::path& dir,
                                   const builder::OpenOptions& with = {.dtype = DType::kBF16}) {
    return MakeRanked(OpenRanks(dir, gpus, with, /*num_stages=*/2), gpus, options);
  }
  std::unique_ptr<Executor> OnOne(const std::filesystem::path& dir,
                                  const builder::OpenOptions& with = {.dtype = DType::kBF16}) {
    auto engine = builder::Open(dir, *gpus[0], with);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    CHECK(engine.ok());
    return MakeExecutor(*engine, *gpus[0], options);
  }
};

TEST_F(CudaStagesFeaturesTest, GuidesHoldAndAnswersAreThoseOfOneGpu) {
  std::vector<Request> requests;
  const auto model = builder::Describe(kDemoModel, {});
  ASSERT_TRUE(model.ok());
  for (int i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back();
    request.input_ids = {5, 9, 17 + i, 33};
    request.max_tokens = 20;
    request.end_ids = {2};
    request.output.return_log_probs = true;
    if (i % 4 == 1) request.sampling = {.temperature = 3.0F, .top_p = 1.0F, .seed = 7};
    if (i % 4 == 2) request.sampling.beam_width = 2;
    if (i % 4 != 3) request.guide = decoding::MakeListGuide(model->config.vocab_size, SomeWays());
  }
  const auto expect_equal = [&](const Sinks& actual, const Sinks& expected) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].sampling.beam_width == 1) {
        ExpectEqual(*actual[i], *expected[i], i);
        continue;
      }
      ASSERT_EQ(actual[i]->last.beams.size(), 2U);
      for (size_t b = 0; b < 2; ++b)
        EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
    }
  };
  const Sinks expected = RunAll<RowsSink>(*OnOne(kDemoModel), requests);
  expect_equal(RunAll<RowsSink>(*Staged(kDemoModel), requests), expected);
  options.drafts = DraftSource::kNgram;
  expect_equal(RunAll<RowsSink>(*Staged(kDemoModel), requests), expected);
}

// Of all layers of the demo model, numbers at random.
std::shared_ptr<const LoraTensors> RandomAdapter(const model::ModelConfig& config, unsigned seed) {
  const int hidden = config.hidden_size;
  const int inner = config.intermediate_size;
  const int q_width = config.num_heads * config.head_dim;
  const int qkv_width = q_width + 2 * config.num_kv_heads * config.head_dim;
  struct Module {
    int id, in, out;
  };
  const Module modules[] = {{0, hidden, qkv_width},
                            {4, q_width, hidden},
                            {5, hidden, inner},
                            {7, hidden, inner},
                            {6, inner, hidden}};
  constexpr int kRank = 4;
  LoraTensors adapter;
  adapter.dtype = LoraDType::kFloat32;
  adapter.width = int64_t{kRank} * (inner + hidden);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  std::vector<float> weights;
  for (int layer = 0; layer < config.num_layers; ++layer)
    for (const Module& module : modules) {
      adapter.rows.push_back({.module = module.id, .layer = layer, .rank = kRank});
      const size_t end = weights.size() + static_cast<size_t>(adapter.width);
      for (int i = 0; i < kRank * (module.in + module.out); ++i) weights.push_back(normal(random));
      weights.resize(end);
    }
  adapter.weights.resize(weights.size() * sizeof(float));
  std::memcpy(adapter.weights.data(), weights.data(), adapter.weights.size());
  return std::make_shared<const LoraTensors>(std::move(adapter));
}

// Each stage has the parts of its layers. The oracle is one GPU, whose adapters have tests of their
// own. Four stages of two layers, and three of which one has fewer.
TEST_F(CudaStagesFeaturesTest, AdaptersAnswerAsOnOneGpu) {
  const auto model = builder::Describe(kDemoModel, {});
  ASSERT_TRUE(model.ok());
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back();
    request.input_ids = {5, 9, 17 + i, 33};
    request.max_tokens = 16;
    request.output.return_log_probs = true;
    const auto id = static_cast<unsigned>(i % 4);
    if (id > 0) request.lora = LoraUse{.id = id, .tensors = RandomAdapter(model->config, id)};
  }
  const Sinks expected = RunAll<RowsSink>(*OnOne(kDemoModel), requests);
  EXPECT_NE(expected[0]->log_probs, expected[1]->log_probs);
  {
    const auto staged = Staged(kDemoModel);
    // One alone first: its memory is taken between steps of others.
    ExpectEqual(*RunAll<RowsSink>(*staged, {requests[1]}).front(), *expected[1], 1);
    ExpectAllEqual(requests, RunAll<RowsSink>(*staged, requests), expected);
  }
  if (NumRankGpus() < 3) return;
  const Gpus three = RankGpus(3);
  const auto uneven =
      MakeRanked(OpenRanks(kDemoModel, three, {.dtype = DType::kBF16}, 3), three, options);
  ExpectAllEqual(requests, RunAll<RowsSink>(*uneven, requests), expected);
}

// The first stage reads the tables; drafts of the client are judged by the last one.
TEST_F(CudaStagesFeaturesTest, PromptTablesAndClientsDraftsAnswerAsOnOneGpu) {
  const auto model = builder::Describe(kDemoModel, {});
  ASSERT_TRUE(model.ok());
  builder::OpenOptions with{.dtype = DType::kBF16, .limits = model::ServedAsItIs()};
  with.limits->max_draft_len = 6;
  auto table = std::make_shared<PromptTable>();
  table->num_rows = 4;
  table->hidden_size = model->config.hidden_size;
  for (int i = 0; i < 4 * table->hidden_size; ++i)
    table->values.push_back(0.1F * static_cast<float>(i % 23 - 11));
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    Request& request = requests.emplace_back();
    request.input_ids = {5, 9, 17 + i, 33, 100 - i};
    request.max_tokens = 12;
    request.output.return_log_probs = true;
    if (i % 3 == 1) {
      const int vocab_size = model->config.vocab_size;
      request.input_ids.insert(request.input_ids.begin() + 1,
                               {vocab_size, vocab_size + 3, vocab_size + 1});
      request.prompt_table = table;
    }
    if (i % 3 == 2) request.draft_ids = {60, 61, 62 + i};
  }
  const Sinks expected = RunAll<RowsSink>(*OnOne(kDemoModel, with), requests);
  ExpectAllEqual(requests, RunAll<RowsSink>(*Staged(kDemoModel, with), requests), expected);
  options.max_num_tokens = 8;  // prompts in pieces
  ExpectAllEqual(requests, RunAll<RowsSink>(*Staged(kDemoModel, with), requests), expected);
}

// What a prompt leaves is found again in each stage's memory, and in its part of the host's.
TEST_F(CudaStagesFeaturesTest, PrefixesComeBackFromTheHostPool) {
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    Request& request = requests.emplace_back();
    for (int t = 0; t < 70; ++t) request.input_ids.push_back(100 + (i % 6) * 90 + t);
    request.input_ids.push_back(50 + i);
    request.max_tokens = 6;
    request.output.return_log_probs = true;
  }
  const Sinks expected = RunAll<RowsSink>(*OnOne(kDemoModel), requests);
  options.max_kv_tokens = 256;
  options.kv_cache_host_bytes = uint64_t{8} << 20;
  const auto staged = Staged(kDemoModel);
  int num_reused = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto answer = RunAll<RowsSink>(*staged, {requests[i]}).front();
    ExpectEqual(*answer, *expected[i], i);
    num_reused += answer->last.num_cached_tokens > 0 ? 1 : 0;
  }
  EXPECT_GE(num_reused, 18);
}

TEST_F(CudaStagesFeaturesTest, StreamedWeightsChangeNoAnswer) {
  // A copy to a GPU waits for what its queue holds, which may be a kernel that waits for the rank
  // whose copy stands behind it: cuda_ranks_test, with a GPU for each rank, runs this. The plan of
  // streamed layers, which needs no GPU, is weight_plan_test.cc's.
  if (gpus[0] == gpus[1])
    GTEST_SKIP() << "ranks share a GPU, whose copies would wait for each other; cuda_ranks_test "
                    "runs this with a GPU for each rank";
  const auto model = builder::Describe(kDemoModel, {});
  ASSERT_TRUE(model.ok());
  const auto requests = RequestsOfAllKinds(model->config.vocab_size);
  const Sinks expected = RunAll<RowsSink>(*OnOne(kDemoModel), requests);
  builder::OpenOptions with{.dtype = DType::kBF16};
  for (int layer = 0; layer < model->config.num_layers / 2; ++layer)
    with.streamed_layers.push_back(layer);
  ExpectAllEqual(requests, RunAll<RowsSink>(*Staged(kDemoModel, with), requests), expected);
}

// A stage that draws nothing takes neither a head nor what samples.
TEST_F(CudaStagesFeaturesTest, TheMemoryOfAllStagesIsCounted) {
  const auto local = executor::CreateCudaRanks(
      OpenRanks(kDemoModel, gpus, {.dtype = DType::kBF16}, /*num_stages=*/2), gpus, options);
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  ASSERT_EQ(local->plans.size(), 2U);
  int64_t planned = 0;
  for (const executor::MemoryPlan& plan : local->plans)
    planned += static_cast<int64_t>(plan.total_bytes());
  EXPECT_EQ(local->backend->info().gpu_memory_bytes, planned);
  EXPECT_EQ(local->plans[0].sampler_bytes, 0U);
  EXPECT_GT(local->plans[1].sampler_bytes, 0U);
  EXPECT_LT(local->plans[0].workspace_bytes, local->plans[1].workspace_bytes);
  EXPECT_EQ(local->plans[0].num_blocks, local->plans[1].num_blocks);
}

// The first stage has a draft model, and what draws its drafts.
TEST_F(CudaStagesFeaturesTest, TheFirstStageAloneHasADraftModel) {
  options.drafts = DraftSource::kModel;
  RankDrafts drafts = DemoDrafts({gpus[0]}, DType::kBF16);
  drafts.resize(2);
  const auto local = executor::CreateCudaRanks(
      OpenRanks(kDemoModel, gpus, {.dtype = DType::kBF16}, /*num_stages=*/2), gpus, options, {},
      drafts);
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  EXPECT_GT(local->plans[0].sampler_bytes, 0U);
  EXPECT_EQ(local->plans[0].num_blocks, local->plans[1].num_blocks);
  EXPECT_GT(local->plans[0].kv_bytes_per_block, local->plans[1].kv_bytes_per_block);
}

// Masks are found for places behind drafts, which come to the last stage from the first one, or
// which texts of the last stage guess.
TEST_F(CudaStagesFeaturesTest, GuidesHoldBesideDraftsOfOtherStages) {
  std::vector<Request> requests;
  const auto model = builder::Describe(kDemoModel, {});
  ASSERT_TRUE(model.ok());
  for (int i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back();
    request.input_ids = {5, 9, 17 + i, 33};
    request.max_tokens = 20;
    request.end_ids = {2};
    request.output.return_log_probs = true;
    if (i % 3 != 2) request.guide = decoding::MakeListGuide(model->config.vocab_size, SomeWays());
  }
  const Sinks expected = RunAll<RowsSink>(*OnOne(kDemoModel), requests);
  options.drafts = DraftSource::kSuffix;
  ExpectAllEqual(requests, RunAll<RowsSink>(*Staged(kDemoModel), requests), expected);
  options.drafts = DraftSource::kModel;
  RankDrafts drafts = DemoDrafts({gpus[0]}, DType::kBF16);
  drafts.resize(2);
  const auto drafted =
      MakeRanked(OpenRanks(kDemoModel, gpus, {.dtype = DType::kBF16}, 2), gpus, options, drafts);
  ExpectAllEqual(requests, RunAll<RowsSink>(*drafted, requests), expected);
}

TEST(StagesOnGpusTest, WhatStagesOnGpusDoNotDoIsRefusedByName) {
  EXPECT_TRUE(executor::CheckCudaRanks({.tp_size = 2, .pp_size = 8}).ok());
  EXPECT_EQ(executor::CheckCudaRanks({.pp_size = 9}).ToString(),
            InvalidArgument("pipeline_parallel_size",
                            "got 9, GPUs take at most 8 stages; use a larger tensor_parallel_size")
                .ToString());
}

}  // namespace
}  // namespace inflight::golden

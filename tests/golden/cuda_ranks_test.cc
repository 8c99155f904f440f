// SPDX-License-Identifier: Apache-2.0
// Models split over GPUs: logits near those of transformers and greedy ids but for ties, as on one
// GPU; every kind of request answered the same alone and beside others.
#include "executor/cuda_ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "builder/sharding.h"
#include "cuda_ranks_fixture.h"
#include "golden_reference.h"
#include "worse.h"

namespace inflight::golden {
namespace {

constexpr const char* kModels[] = {"gpt2_head64",    "llama_head64",     "llama_head128",
                                   "mistral_head64", "qwen2_head64",     "qwen3_head128",
                                   "phi3_head64",    "starcoder2_head64"};

// Into parts whose widths the kernels take.
bool Divides(const std::filesystem::path& dir, int num_ranks) {
  const auto whole = builder::Describe(dir, {.dtype = DType::kBF16});
  CHECK(whole.ok());
  const artifact::RankMapping ranks{.tp_size = num_ranks, .pp_size = 1};
  return whole->config.intermediate_size / num_ranks % 8 == 0 &&
         builder::CheckSharding(whole->config, {.ranks = ranks, .use_parallel_embedding = true})
             .ok();
}

class CudaRanksTest : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(CudaRanksTest, LogitsAndIdsStayNearTransformers) {
  const auto [name, num_ranks] = GetParam();
  NEED_RANK_GPUS(num_ranks);
  const std::filesystem::path dir = DataDir() / name;
  if (!Divides(dir, num_ranks)) GTEST_SKIP() << "the model does not divide by " << num_ranks;
  const Gpus gpus = RankGpus(num_ranks);
  ExecutorOptions options;
  options.block_size = kBlockSize;
  options.max_batch_size = 4;
  options.max_num_tokens = 128;
  const auto executor = MakeRanked(OpenRanks(dir, gpus, {.dtype = DType::kBF16}), gpus, options);
  const std::vector<Expected> expected = ReadReference(dir);
  std::vector<Request> whole(expected.size());
  std::vector<Request> greedy(expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    whole[i].input_ids = expected[i].Whole();
    whole[i].max_tokens = 1;
    whole[i].output.return_context_logits = true;
    greedy[i].input_ids = expected[i].prompt;
    greedy[i].max_tokens = 64;
    greedy[i].output.return_generation_logits = true;
  }
  const auto logits = RunAll<LogitsSink>(*executor, whole);
  const auto answers = RunAll<LogitsSink>(*executor, greedy);
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    const float bound = RoundingBound(DType::kBF16, expected[i]);
    const size_t vocab = expected[i].logits.size() / expected[i].positions.size();
    float worst = 0;
    for (size_t p = 0; p < expected[i].positions.size(); ++p)
      for (size_t v = 0; v < vocab; ++v)
        worst = Worse(
            worst,
            std::fabs(logits[i]->logits[static_cast<size_t>(expected[i].positions[p]) * vocab + v] -
                      expected[i].logits[p * vocab + v]));
    EXPECT_LE(worst, bound);
    ASSERT_EQ(answers[i]->ids.size(), 64);
    const auto differ = std::ranges::mismatch(answers[i]->ids, expected[i].greedy).in1;
    if (differ == answers[i]->ids.end()) continue;
    const auto step = static_cast<size_t>(differ - answers[i]->ids.begin());
    const float* row = answers[i]->logits.data() + step * vocab;
    EXPECT_LE(row[*differ] - row[expected[i].greedy[step]], 2 * bound) << "token " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaRanksTest,
                         testing::Combine(testing::ValuesIn(kModels), testing::Values(2, 4)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

using CudaRanksDemoTest = DemoRanksTest;

TEST_F(CudaRanksDemoTest, EveryKindOfRequestIsAnsweredTheSameAloneAndBesideOthers) {
  const RankEngines engines = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16});
  const auto requests = RequestsOfAllKinds(engines.front()->config.vocab_size);
  const Sinks expected = Run(engines, requests);
  options.max_batch_size = 1;
  const Sinks alone = Run(engines, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
      ExpectEqual(*alone[i], *expected[i], i);
  options.max_batch_size = 8;
  options.drafts = DraftSource::kNgram;
  const Sinks drafted = Run(engines, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
      ExpectEqual(*drafted[i], *expected[i], i);
}

TEST_F(CudaRanksDemoTest, BeamsAndPausesWorkOnRanks) {
  const RankEngines engines = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16});
  auto requests = RequestsOfAllKinds(engines.front()->config.vocab_size);
  requests.resize(6);
  for (const size_t i : {size_t{1}, size_t{4}}) requests[i].sampling = {.beam_width = 3};
  const Sinks expected = Run(engines, requests);
  options.max_num_tokens = 24;
  options.max_kv_tokens = 512;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  const Sinks actual = Run(engines, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
    for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
      EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
  }
}

// A pool for each window, on all ranks alike. Without chunks all layers have one pool.
TEST_F(CudaRanksDemoTest, LayersOfDifferentWindowsAnswerOutOfTheirPools) {
  const RankEngines engines = OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16});
  auto requests = RequestsOfAllKinds(engines.front()->config.vocab_size);
  requests.resize(8);
  requests[4].sampling = {.beam_width = 3};
  options.attention_windows = {0, 32, 24};
  options.sink_tokens = 4;
  options.enable_chunked_prefill = false;
  const Sinks expected = Run(engines, requests);
  options.enable_chunked_prefill = true;
  options.max_num_tokens = 48;
  {
    const auto local = executor::CreateCudaRanks(engines, gpus, options);
    ASSERT_TRUE(local.ok()) << local.status().ToString();
    for (const executor::MemoryPlan& plan : local->plans) {
      ASSERT_EQ(plan.num_groups(), 3);
      for (int g = 0; g < 3; ++g)
        EXPECT_EQ(plan.group(g).num_blocks, local->plans.front().group(g).num_blocks);
    }
  }
  const Sinks actual = Run(engines, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1) {
      EXPECT_EQ(actual[i]->ids, expected[i]->ids) << i;
    }
  ASSERT_EQ(actual[4]->last.beams.size(), expected[4]->last.beams.size());
  for (size_t b = 0; b < actual[4]->last.beams.size(); ++b)
    EXPECT_EQ(actual[4]->last.beams[b].output_ids, expected[4]->last.beams[b].output_ids);
}

TEST_F(CudaRanksDemoTest, TheMemoryOfAllRanksIsCounted) {
  const auto local = executor::CreateCudaRanks(
      OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16}), gpus, options);
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  int64_t planned = 0;
  for (const executor::MemoryPlan& plan : local->plans)
    planned += static_cast<int64_t>(plan.total_bytes());
  EXPECT_EQ(local->backend->info().gpu_memory_bytes, planned);
}

// Weights in FP8 are scaled by each rank for what it has: near one GPU's answers, no more.
TEST_F(CudaRanksDemoTest, QuantisedWeightsAnswerAsOneGpuForAWhile) {
  for (const auto algo : {model::QuantAlgo::kW8A16, model::QuantAlgo::kFp8PerChannelPerToken}) {
    SCOPED_TRACE(std::string(model::QuantAlgoName(algo)));
    options.deterministic = false;
    const RankEngines engines =
        OpenRanks(INFLIGHT_DEMO_MODEL, gpus, {.dtype = DType::kBF16, .quant_algo = algo});
    auto one =
        builder::Open(INFLIGHT_DEMO_MODEL, *gpus[0], {.dtype = DType::kBF16, .quant_algo = algo});
    ASSERT_TRUE(one.ok()) << one.status().ToString();
    std::vector<Request> requests;
    for (int i = 0; i < 32; ++i) {
      Request request;
      request.input_ids = {100 + i, 7, 300 - i};
      request.max_tokens = 8;
      requests.push_back(std::move(request));
    }
    const Sinks on_ranks = Run(engines, requests);
    const Sinks on_one = RunAll<RowsSink>(*MakeExecutor(*one, *gpus[0], options), requests);
    int num_equal = 0;
    for (size_t i = 0; i < requests.size(); ++i) num_equal += on_ranks[i]->ids == on_one[i]->ids;
    EXPECT_GE(num_equal, 20) << "of 32";
  }
}

}  // namespace
}  // namespace inflight::golden

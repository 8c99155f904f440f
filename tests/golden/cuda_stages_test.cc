// SPDX-License-Identifier: Apache-2.0
// Models whose layers are on several GPUs, one stage behind the other. A stage hands over what lies
// between two layers on one GPU too, so that all answers are those of the stages' layers together,
// to the bit, where kernels do not depend on the batch: of one GPU, or of as many as share a layer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "cuda_ranks_fixture.h"
#include "golden_reference.h"
#include "stage_grid.h"

namespace inflight::golden {
namespace {

ExecutorOptions SmallSteps() {
  ExecutorOptions options;
  options.block_size = kBlockSize;
  options.max_batch_size = 8;
  options.max_kv_tokens = 4096;
  options.deterministic = true;
  return options;
}

// The answers of the model in `dir` on that many GPUs that share its layers.
Sinks RunTogether(const std::filesystem::path& dir, int num_gpus, const ExecutorOptions& options,
                  const std::vector<Request>& requests) {
  const Gpus gpus = RankGpus(num_gpus);
  if (num_gpus > 1)
    return RunAll<RowsSink>(
        *MakeRanked(OpenRanks(dir, gpus, {.dtype = DType::kBF16}), gpus, options), requests);
  auto engine = builder::Open(dir, *gpus[0], {.dtype = DType::kBF16});
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  CHECK(engine.ok());
  return RunAll<RowsSink>(*MakeExecutor(*engine, *gpus[0], options), requests);
}

Sinks RunStaged(const std::filesystem::path& dir, const StageGrid& grid,
                const ExecutorOptions& options, const std::vector<Request>& requests) {
  const Gpus gpus = RankGpus(grid.num_gpus);
  const RankEngines engines = OpenRanks(dir, gpus, {.dtype = DType::kBF16}, grid.num_stages);
  return RunAll<RowsSink>(*MakeRanked(engines, gpus, options), requests);
}

// Of 100 drafts so many were accepted.
int64_t AcceptedPercent(const Sinks& sinks) {
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  for (const auto& sink : sinks) {
    num_drafted += sink->last.num_draft_tokens;
    num_accepted += sink->last.num_accepted_draft_tokens;
  }
  EXPECT_GT(num_drafted, 0);
  return num_drafted == 0 ? 0 : 100 * num_accepted / num_drafted;
}

std::vector<Request> GreedyRequests() {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back();
    for (int t = 0; t < 3 + 4 * i; ++t) request.input_ids.push_back(90 + (5 * t + 11 * i) % 300);
    request.max_tokens = 40;
    request.output.return_log_probs = true;
  }
  return requests;
}

class CudaStagedModelsTest : public testing::TestWithParam<const char*> {};

// Logits of whole prompts, and greedy tokens with their log-probs.
TEST_P(CudaStagedModelsTest, TwoStagesAnswerAsOneGpu) {
  NEED_RANK_GPUS(2);
  const std::filesystem::path dir = DataDir() / GetParam();
  std::vector<Request> requests;
  for (const Expected& expected : ReadReference(dir)) {
    Request& whole = requests.emplace_back();
    whole.input_ids = expected.Whole();
    whole.max_tokens = 1;
    whole.output.return_context_logits = true;
    Request& greedy = requests.emplace_back();
    greedy.input_ids = expected.prompt;
    greedy.max_tokens = 64;
    greedy.output.return_log_probs = greedy.output.return_generation_logits = true;
  }
  ExecutorOptions options = SmallSteps();
  options.max_num_tokens = 128;
  const Sinks expected = RunTogether(dir, 1, options, requests);
  const Sinks actual = RunStaged(dir, {}, options, requests);
  ExpectAllEqual(requests, actual, expected);
}

// Norms before and behind, parallel residuals, learned positions, experts, windows, 2 layers each.
INSTANTIATE_TEST_SUITE_P(Models, CudaStagedModelsTest,
                         testing::Values("llama_head128", "mistral_head64", "gemma2_head64",
                                         "gpt_neox_parallel64", "mixtral_head64",
                                         "starcoder2_head64"),
                         [](const auto& info) { return std::string(info.param); });

class CudaStagesTest : public testing::TestWithParam<StageGrid> {
 protected:
  void SetUp() override {
    NEED_RANK_GPUS(GetParam().num_gpus);
    if (GetParam().uses_nccl()) NEED_NCCL(GetParam().num_gpus);
    setenv("INFLIGHT_CUDA_COLLECTIVES", GetParam().collectives, 1);
    options = SmallSteps();
  }
  void TearDown() override { unsetenv("INFLIGHT_CUDA_COLLECTIVES"); }
  Sinks Expect(const std::vector<Request>& requests) {
    return RunTogether(kDemo, GetParam().stage_size(), options, requests);
  }
  Sinks Run(const std::vector<Request>& requests) {
    return RunStaged(kDemo, GetParam(), options, requests);
  }
  std::vector<Request> Requests() {
    const auto model = builder::Describe(kDemo, {});
    CHECK(model.ok());
    return RequestsOfAllKinds(model->config.vocab_size);
  }

  static constexpr const char* kDemo = INFLIGHT_DEMO_MODEL;
  ExecutorOptions options;
};

TEST_P(CudaStagesTest, EveryKindOfRequestIsAnsweredAsWithoutStages) {
  const auto requests = Requests();
  const Sinks expected = Expect(requests);
  ExpectAllEqual(requests, Run(requests), expected);
  options.max_batch_size = 1;  // one stage is busy at a time
  ExpectAllEqual(requests, Run(requests), expected);
}

// Of steps whose logits the host reads the last stage has no graph, of whatever size those of the
// stages before it are.
TEST_P(CudaStagesTest, LogitsOfPromptsAreThoseWithoutStages) {
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i) {
    Request& request = requests.emplace_back();
    for (int t = 0; t <= 5 * i; ++t) request.input_ids.push_back(100 + 7 * i + 3 * t);
    request.max_tokens = 5;
    request.output.return_context_logits = i % 2 == 0;
    request.output.return_generation_logits = i % 3 == 0;
    request.output.return_log_probs = true;
  }
  const Sinks expected = Expect(requests);
  ExpectAllEqual(requests, Run(requests), expected);
  options.max_num_tokens = 12;  // prompts in pieces
  ExpectAllEqual(requests, Run(requests), expected);
}

TEST_P(CudaStagesTest, DraftsOutOfTextsChangeNoAnswer) {
  const auto requests = Requests();
  const Sinks expected = Expect(requests);
  options.drafts = DraftSource::kNgram;
  const Sinks drafted = Run(requests);
  ExpectAllEqual(requests, drafted, expected);
  int64_t num_accepted = 0;
  for (const auto& sink : drafted) num_accepted += sink->last.num_accepted_draft_tokens;
  EXPECT_GT(num_accepted, 0);
}

// The demo model proposes what it draws itself: nearly all is accepted, if each stage has the
// drafts of the first one.
TEST_P(CudaStagesTest, ADraftModelOfTheFirstStageChangesNoAnswer) {
  const auto requests = Requests();
  const auto greedy = GreedyRequests();
  const Sinks expected = Expect(requests);
  const Sinks expected_greedy = Expect(greedy);
  const Gpus gpus = RankGpus(GetParam().num_gpus);
  const Gpus drafting(gpus.begin(), gpus.begin() + GetParam().stage_size());
  RankDrafts drafts = DemoDrafts(drafting, DType::kBF16);
  drafts.resize(gpus.size());
  options.drafts = DraftSource::kModel;
  options.max_draft_len = 3;
  const auto executor =
      MakeRanked(OpenRanks(kDemo, gpus, {.dtype = DType::kBF16}, GetParam().num_stages), gpus,
                 options, drafts);
  const Sinks drafted = RunAll<RowsSink>(*executor, greedy);
  ExpectAllEqual(greedy, drafted, expected_greedy);
  EXPECT_GE(AcceptedPercent(drafted), 80);
  ExpectAllEqual(requests, RunAll<RowsSink>(*executor, requests), expected);
}

// What was answered before is guessed again.
TEST_P(CudaStagesTest, DraftsOutOfOtherTextsChangeNoAnswer) {
  const auto requests = Requests();
  const auto greedy = GreedyRequests();
  const Sinks expected = Expect(requests);
  const Sinks expected_greedy = Expect(greedy);
  options.drafts = DraftSource::kSuffix;
  const Gpus gpus = RankGpus(GetParam().num_gpus);
  const auto executor = MakeRanked(
      OpenRanks(kDemo, gpus, {.dtype = DType::kBF16}, GetParam().num_stages), gpus, options);
  for (int round = 0; round < 2; ++round) {
    const Sinks drafted = RunAll<RowsSink>(*executor, greedy);
    ExpectAllEqual(greedy, drafted, expected_greedy);
    if (round > 0) {
      EXPECT_GE(AcceptedPercent(drafted), 80);
    }
  }
  ExpectAllEqual(requests, RunAll<RowsSink>(*executor, requests), expected);
}

// A pool for each window: stages have the same, also one that has no layer of a window.
TEST_P(CudaStagesTest, LayersOfDifferentWindowsAnswerOutOfTheirPools) {
  auto requests = Requests();
  requests.resize(12);
  requests[4].sampling = {.beam_width = 3};
  options.attention_windows = {0, 32, 24, 24};
  options.sink_tokens = 4;
  options.enable_chunked_prefill = false;
  const Sinks expected = Expect(requests);
  options.enable_chunked_prefill = true;
  options.max_num_tokens = 48;
  const Sinks actual = Run(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1) {
      EXPECT_EQ(actual[i]->ids, expected[i]->ids) << i;
    }
  }
  ASSERT_EQ(actual[4]->last.beams.size(), expected[4]->last.beams.size());
  for (size_t b = 0; b < actual[4]->last.beams.size(); ++b)
    EXPECT_EQ(actual[4]->last.beams[b].output_ids, expected[4]->last.beams[b].output_ids);
}

// Beams, prompts in chunks, sequences that are paused and computed again, prefixes that are reused.
TEST_P(CudaStagesTest, BeamsChunksAndPausesWorkOnStages) {
  auto requests = Requests();
  requests.resize(12);
  for (const size_t i : {size_t{1}, size_t{4}, size_t{7}}) requests[i].sampling = {.beam_width = 3};
  requests[7].sampling.repetition_penalty = 1.2F;  // what each beam holds counts
  const Sinks expected = Expect(requests);
  const auto expect_equal = [&](const Sinks& actual) {
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
      EXPECT_EQ(actual[i]->ids, expected[i]->ids);
      ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
      for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
        EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
    }
  };
  expect_equal(Run(requests));
  options.max_num_tokens = 24;
  options.max_kv_tokens = 512;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  expect_equal(Run(requests));
}

// Slots are given to others while steps of those that had them may still be on their way.
TEST_P(CudaStagesTest, ManyShortRequestsTakeEachOthersSlots) {
  std::vector<Request> requests;
  for (int i = 0; i < 200; ++i) {
    Request& request = requests.emplace_back();
    request.input_ids = {100 + i, 7, 300 - i};
    request.max_tokens = 1 + i % 7;
    if (i % 3 == 0) request.sampling = {.temperature = 1.0F, .seed = static_cast<uint64_t>(i)};
    request.output.return_log_probs = true;
  }
  options.max_batch_size = 6;
  const Sinks expected = Expect(requests);
  ExpectAllEqual(requests, Run(requests), expected);
}

INSTANTIATE_TEST_SUITE_P(Grids, CudaStagesTest,
                         testing::Values(StageGrid{2, 2}, StageGrid{3, 3}, StageGrid{4, 4},
                                         StageGrid{4, 2}, StageGrid{2, 2, "told"},
                                         StageGrid{3, 3, "told"}, StageGrid{4, 2, "told"},
                                         StageGrid{2, 2, "nccl"}, StageGrid{3, 3, "nccl"},
                                         StageGrid{4, 2, "nccl"}),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace inflight::golden

// SPDX-License-Identifier: Apache-2.0
// Heads of Medusa and of EAGLE on the last of several stages on GPUs, whose trees go back to the
// first one: no answer depends on them, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "builder/eagle_files.h"
#include "cuda_ranks_fixture.h"
#include "decoding/list_guide.h"
#include "fitted_heads.h"
#include "guide_ways.h"
#include "model/adapter_part.h"
#include "stage_grid.h"
#include "widened_head.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

constexpr int kNumMedusaHeads = 4;

class CudaStagesHeadsTest : public testing::TestWithParam<StageGrid> {
 protected:
  void SetUp() override {
    NEED_RANK_GPUS(GetParam().num_gpus);
    if (GetParam().uses_nccl()) NEED_NCCL(GetParam().num_gpus);
    setenv("INFLIGHT_CUDA_COLLECTIVES", GetParam().collectives, 1);
    folder = fs::path(testing::TempDir()) / ("cuda_stages_heads_" + GetParam().Name());
    gpus = RankGpus(GetParam().num_gpus);
    const auto model = builder::Describe(kDemo, {});
    ASSERT_TRUE(model.ok());
    const int vocab_size = model->config.vocab_size;
    requests = RequestsOfAllKinds(vocab_size);
    Request& guided = requests.emplace_back();
    guided.input_ids = {5, 9, 17, 33};
    guided.max_tokens = 20;
    guided.end_ids = {2};
    guided.guide = decoding::MakeListGuide(vocab_size, SomeWays());
    options.block_size = 64;
    options.max_batch_size = 8;
    options.max_kv_tokens = 4096;
    options.deterministic = true;
  }
  void TearDown() override {
    unsetenv("INFLIGHT_CUDA_COLLECTIVES");
    fs::remove_all(folder);
  }

  // Without stages and without drafts.
  Sinks Expect() {
    ExecutorOptions plain = options;
    plain.drafts = DraftSource::kNone;
    const Gpus sharing(gpus.begin(), gpus.begin() + GetParam().stage_size());
    const RankEngines engines = OpenRanks(kDemo, sharing, {.dtype = DType::kBF16});
    if (sharing.size() > 1) return RunAll<RowsSink>(*MakeRanked(engines, sharing, plain), requests);
    return RunAll<RowsSink>(*MakeExecutor(engines.front(), *sharing.front(), plain), requests);
  }

  // A checkpoint of the demo model whose heads know how these answers go on.
  fs::path WithHeads(const Sinks& answers) const {
    std::vector<std::vector<TokenId>> texts;
    for (size_t i = 0; i < requests.size(); ++i) {
      texts.push_back(requests[i].input_ids);
      texts.back().insert(texts.back().end(), answers[i]->ids.begin(), answers[i]->ids.end());
    }
    const auto checkpoint =
        WriteFittedHeads(kDemo, texts, kNumMedusaHeads, DType::kBF16, folder / "medusa");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    CHECK(checkpoint.ok());
    return *checkpoint;
  }
  RankEngines OpenStages(const fs::path& dir) const {
    return OpenRanks(dir, gpus, {.dtype = DType::kBF16}, GetParam().num_stages);
  }
  // Stages that had other drafts than the last one, or keys and values at other places, would hand
  // over other rows from there on.
  Sinks Run(const RankEngines& engines, const RankDrafts& drafts = {}) {
    const auto executor = MakeRanked(engines, gpus, options, drafts);
    Sinks actual = RunAll<RowsSink>(*executor, requests);
    executor->Shutdown(0);
    const ExecutorStats stats = executor->stats();
    EXPECT_GT(stats.drafts_accepted, 40);
    EXPECT_GT(stats.tokens_drafted, stats.drafts_accepted);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    return actual;
  }

  static constexpr const char* kDemo = INFLIGHT_DEMO_MODEL;
  fs::path folder;
  Gpus gpus;
  ExecutorOptions options;
  std::vector<Request> requests;
};

TEST_P(CudaStagesHeadsTest, TreesOfMedusaChangeNoAnswer) {
  const Sinks expected = Expect();
  const RankEngines engines = OpenStages(WithHeads(expected));
  for (const auto& engine : engines) {
    const bool is_last = engine->config.part.is_last_stage();
    EXPECT_EQ(engine->config.num_medusa_heads, kNumMedusaHeads);
    EXPECT_EQ(engine->weights.medusa_heads.size(), is_last ? size_t{kNumMedusaHeads} : 0U);
  }
  ExpectAllEqual(requests, Run(engines), expected);
  options.medusa_choices = {{0}, {0, 1}, {0, 0}, {1}, {0, 0, 2}, {1, 1}};
  ExpectAllEqual(requests, Run(engines), expected);
  options.medusa_choices.clear();
  options.max_batch_size = 1;  // one stage is busy at a time
  ExpectAllEqual(requests, Run(engines), expected);
}

TEST_P(CudaStagesHeadsTest, TreesOfEagleChangeNoAnswer) {
  const Sinks expected = Expect();
  const Status written =
      WriteWidenedHead(fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / "v1", folder, kDemo);
  ASSERT_TRUE(written.ok()) << written.ToString();
  const RankEngines engines = OpenStages(kDemo);
  RankDrafts drafts(engines.size());
  for (size_t r = 0; r < engines.size(); ++r) {
    if (!engines[r]->config.part.is_last_stage()) continue;
    const auto head = builder::OpenEagleHead(folder, model::WholeConfig(engines[r]->config),
                                             *gpus[r], builder::EaglePlace::kLastStage);
    ASSERT_TRUE(head.ok()) << head.status().ToString();
    drafts[r].eagle = *head;
  }
  ExpectAllEqual(requests, Run(engines, drafts), expected);
  options.max_batch_size = 1;
  ExpectAllEqual(requests, Run(engines, drafts), expected);
}

// Prompts in chunks, sequences that are paused and computed again, and searches, which have no
// drafts, beside trees.
TEST_P(CudaStagesHeadsTest, ChunksPausesAndBeamsWorkBesideTrees) {
  requests.resize(12);
  for (const size_t i : {size_t{1}, size_t{7}}) requests[i].sampling = {.beam_width = 3};
  const Sinks expected = Expect();
  const RankEngines engines = OpenStages(WithHeads(expected));
  options.max_num_tokens = 96;
  options.max_kv_tokens = 640;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  const auto executor = MakeRanked(engines, gpus, options);
  const Sinks actual = RunAll<RowsSink>(*executor, requests);
  EXPECT_GT(executor->stats().drafts_accepted, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(actual[i]->last.status.ok()) << actual[i]->last.status.ToString();
    EXPECT_EQ(actual[i]->ids, expected[i]->ids);
    ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
    for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
      EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
  }
}

// A pool for each window, in each of which keys and values move.
TEST_P(CudaStagesHeadsTest, TreesMoveInThePoolsOfAllWindows) {
  const RankEngines engines = OpenStages(WithHeads(Expect()));
  options.attention_windows = {0, 160, 128, 128};
  options.max_num_tokens = 128;
  options.drafts = DraftSource::kNone;
  const Sinks expected = RunAll<RowsSink>(*MakeRanked(engines, gpus, options), requests);
  options.drafts = DraftSource::kAuto;
  ExpectAllEqual(requests, Run(engines), expected);
}

INSTANTIATE_TEST_SUITE_P(Grids, CudaStagesHeadsTest,
                         testing::Values(StageGrid{2, 2}, StageGrid{3, 3}, StageGrid{4, 2},
                                         StageGrid{2, 2, "told"}, StageGrid{4, 2, "told"},
                                         StageGrid{2, 2, "nccl"}, StageGrid{4, 2, "nccl"}),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace inflight::golden

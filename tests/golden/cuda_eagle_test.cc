// SPDX-License-Identifier: Apache-2.0
// Heads of EAGLE on a GPU: no answer depends on their trees, bit for bit, and they guess as well as
// on the CPU, whose logits and trees PyTorch judges (eagle_golden_test.cc).
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "artifact/tensor_set.h"
#include "builder/eagle_files.h"
#include "constants.h"
#include "cuda_trees_fixture.h"
#include "golden_reference.h"
#include "widened_head.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

// Of a version.
class CudaEagleTest : public CudaTreesTest<int> {
 protected:
  void SetUp() override {
    CudaTreesTest::SetUp();
    if (IsSkipped()) return;
    Open(INFLIGHT_DEMO_MODEL, DType::kBF16);
    head_dir_ = fs::path(testing::TempDir()) / ("cuda_eagle_v" + std::to_string(GetParam()));
    const Status written = WriteWidenedHead(GoldenDir(), head_dir_);
    ASSERT_TRUE(written.ok()) << written.ToString();
    OpenHead(head_dir_);
  }

  fs::path GoldenDir() const {
    return fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / ("v" + std::to_string(GetParam()));
  }

  void OpenHead(const fs::path& dir) {
    auto head = builder::OpenEagleHead(dir, engine_->config, *device_);
    ASSERT_TRUE(head.ok()) << head.status().ToString();
    draft_.eagle = *std::move(head);
  }
  void TearDown() override { fs::remove_all(head_dir_); }

  fs::path head_dir_;
};

TEST_P(CudaEagleTest, EveryKindOfRequestIsAnsweredTheSame) {
  options_.block_size = 64;
  const Sinks expected = Plain();
  ExpectSame(expected);
  options_.max_batch_size = 1;
  ExpectSame(expected);
}

// Whose keys and values stand in rows with zeros behind them.
TEST_P(CudaEagleTest, HeadsOfANarrowerWidthToo) {
  options_.block_size = 64;
  const Sinks expected = Plain();
  OpenHead(GoldenDir());
  ExpectSame(expected);
}

TEST_P(CudaEagleTest, AlsoInChunksWithPausesAndWithoutReuse) {
  options_.block_size = kBlockSize;
  options_.max_num_tokens = 48;
  const Sinks expected = Plain();
  ExpectSame(expected);
  options_.max_kv_tokens = 256;
  options_.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(expected);
  EXPECT_GT(stats_.num_pauses, 0);
  options_.enable_prefix_reuse = false;
  options_.chunking_policy = ChunkingPolicy::kEqualProgress;
  ExpectSame(expected);
}

TEST_P(CudaEagleTest, WhatIsReusedIsWhatPlainStepsWrote) {
  options_.block_size = kBlockSize;
  requests_.resize(8);
  for (Request& request : requests_) request.end_ids = {}, request.stop_words = {};
  Plain();
  GoOnFromAnswers();
  options_.kv_cache_host_bytes = 1 << 20;
  ExpectSame(Run(options_));
  EXPECT_GT(stats_.prompt_tokens_cached, 0);
}

// Whose keys waited in rings, until those were full and until the sequences ended.
TEST_P(CudaEagleTest, AnswersWithoutDraftsHaveItsKeysToo) {
  const fs::path file =
      fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / ("v" + std::to_string(GetParam()) + ".safetensors");
  const auto reference = artifact::TensorSet::OpenFile(file);
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  const std::vector<TokenId> whole = PromptAndGreedy(*reference);
  requests_.assign(2, Request());
  requests_[0].input_ids.assign(whole.begin(), whole.begin() + 23);
  requests_[0].max_tokens = 60;
  requests_[0].sampling.disable_speculation = true;
  options_.max_batch_size = 1;
  options_.block_size = kBlockSize;
  options_.drafts = DraftSource::kEagle;
  requests_[1] = requests_[0];
  requests_[1].max_tokens = 30;
  const Sinks first = Run(options_, draft_);
  EXPECT_EQ(stats_.tokens_drafted, 0);
  requests_[1].input_ids.insert(requests_[1].input_ids.end(), first[0]->ids.begin(),
                                first[0]->ids.begin() + 50);
  requests_[1].sampling.disable_speculation = false;
  const Sinks reused = Run(options_, draft_);
  EXPECT_EQ(stats_.prompt_tokens_cached, 64);
  options_.enable_prefix_reuse = false;
  const Sinks computed = Run(options_, draft_);
  const int accepted = computed[1]->last.num_accepted_draft_tokens;
  EXPECT_GT(accepted, 0);
  EXPECT_GE(reused[1]->last.num_accepted_draft_tokens, accepted * 3 / 4);
}

TEST_P(CudaEagleTest, SlidingWindowsHoldNoDraftBack) {
  options_.attention_windows = {32};
  options_.sink_tokens = 4;
  options_.block_size = kBlockSize;
  ExpectSame(Plain());
}

TEST_P(CudaEagleTest, BeamSearchesGoBesideThem) {
  requests_.resize(6);
  for (const size_t i : {size_t{1}, size_t{4}}) requests_[i].sampling = {.beam_width = 3};
  const Sinks expected = Plain();
  ExecutorOptions with = options_;
  with.drafts = DraftSource::kEagle;
  const Sinks actual = Run(with, draft_);
  EXPECT_GT(stats_.drafts_accepted, 5);
  for (size_t i = 0; i < requests_.size(); ++i) ExpectEqual(*actual[i], *expected[i], i);
}

// The same head on the CPU, in the same dtype, of the text that it was trained on.
TEST_P(CudaEagleTest, AsManyDraftsAreRightAsOnTheCpu) {
  const fs::path file =
      fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / ("v" + std::to_string(GetParam()) + ".safetensors");
  const auto reference = artifact::TensorSet::OpenFile(file);
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  const std::vector<TokenId> whole = PromptAndGreedy(*reference);
  requests_.clear();
  for (size_t begin = 4; begin < 12; ++begin) {
    Request request;
    request.input_ids.assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(begin));
    request.max_tokens = 60;
    requests_.push_back(std::move(request));
  }
  options_.block_size = 64;
  options_.max_batch_size = 1;
  options_.deterministic = false;
  options_.drafts = DraftSource::kEagle;
  Run(options_, draft_);
  const ExecutorStats on_gpu = stats_;
  const std::shared_ptr<Device> cpu = Device::Cpu(2);
  auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *cpu, {.dtype = DType::kBF16, .limits = {}});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  auto head = builder::OpenEagleHead(head_dir_, (*opened)->config, *cpu);
  ASSERT_TRUE(head.ok()) << head.status().ToString();
  EvenClock clock;
  const auto executor =
      MakeExecutor(*opened, *cpu, options_, {}, {.model = nullptr, .eagle = *head}, clock);
  RunAll<RowsSink>(*executor, requests_);
  executor->Shutdown(0);
  const ExecutorStats on_cpu = executor->stats();
  const auto per_row = [](const ExecutorStats& stats) {
    return static_cast<double>(stats.tokens_decoded) / static_cast<double>(stats.rows_decoded);
  };
  EXPECT_GT(per_row(on_cpu), 1.3);
  EXPECT_GT(per_row(on_gpu), 0.9 * per_row(on_cpu));
}

INSTANTIATE_TEST_SUITE_P(Versions, CudaEagleTest, testing::Values(1, 3),
                         [](const auto& info) { return "v" + std::to_string(info.param); });

}  // namespace
}  // namespace inflight::golden

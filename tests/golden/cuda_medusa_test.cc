// SPDX-License-Identifier: Apache-2.0
// Medusa's heads on a GPU: no answer depends on their trees, bit for bit, whatever requests ask
// for. The heads know the answers about as well as trained ones do.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "constants.h"
#include "cuda_trees_fixture.h"
#include "fitted_heads.h"
#include "golden_reference.h"
#include "lora_cases.h"
#include "speculation_cases.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

constexpr int kNumHeads = 4;

class CudaMedusaTest : public CudaTreesTest<DType> {
 protected:
  void SetUp() override {
    CudaTreesTest::SetUp();
    if (!IsSkipped()) Use(INFLIGHT_DEMO_MODEL);
  }

  void Use(const fs::path& dir) {
    model_dir_ = dir;
    Open(dir, GetParam());
  }

  // Without drafts; heads that were fitted to these answers are with the model then.
  Sinks PlainAndFit() {
    Sinks sinks = Plain();
    auto opened = OpenWithFittedHeads(
        model_dir_, answers_, kNumHeads, GetParam(), *device_,
        fs::path(testing::TempDir()) / ("cuda_medusa_" + std::string(DTypeName(GetParam()))));
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    CHECK(opened.ok());
    engine_ = *std::move(opened);
    return sinks;
  }

  fs::path model_dir_;
};

TEST_P(CudaMedusaTest, EveryKindOfRequestIsAnsweredTheSame) {
  options_.block_size = 64;
  const Sinks expected = PlainAndFit();
  ExpectSame(expected);
  ExpectSame(expected, {{0}, {0, 1}, {0, 0}, {1}, {0, 0, 2}, {1, 1}});
  options_.max_batch_size = 1;
  ExpectSame(expected);
}

TEST_P(CudaMedusaTest, AlsoInChunksWithPausesAndWithoutReuse) {
  options_.block_size = kBlockSize;
  options_.max_num_tokens = 48;
  const Sinks expected = PlainAndFit();
  ExpectSame(expected);
  options_.max_kv_tokens = 256;
  options_.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(expected);
  EXPECT_GT(stats_.num_pauses, 0);
  options_.enable_prefix_reuse = false;
  options_.chunking_policy = ChunkingPolicy::kEqualProgress;
  ExpectSame(expected);
}

// Keys and values of an accepted path are those of plain steps: who goes on from them sees no
// difference.
TEST_P(CudaMedusaTest, WhatIsReusedIsWhatPlainStepsWrote) {
  options_.block_size = kBlockSize;
  requests_.resize(8);
  for (Request& request : requests_) request.end_ids = {}, request.stop_words = {};
  PlainAndFit();
  const size_t num_first = requests_.size();
  for (size_t i = 0; i < num_first; ++i) {
    Request next = requests_[i];
    next.input_ids = answers_[i];
    requests_.push_back(next);
  }
  options_.max_batch_size =
      1;  // one after another, so that the second ones find the first's blocks
  const Sinks expected = Run(options_);
  ExpectSame(expected);
  EXPECT_GT(stats_.prompt_tokens_cached, 0);
}

TEST_P(CudaMedusaTest, SlidingWindowsHoldNoDraftBack) {
  options_.attention_windows = {32};
  options_.sink_tokens = 4;
  options_.block_size = kBlockSize;
  ExpectSame(PlainAndFit());
}

TEST_P(CudaMedusaTest, RowsWithAdaptersHaveTreesToo) {
  Use(DataDir() / "llama_head64");
  Prompts prompts(engine_->config.vocab_size);
  requests_.clear();
  for (const LoraCase& c : ReadLoraCases()) {
    if (c.model != "llama_head64") continue;
    Request request = RequestOf(c, requests_.size());
    request.input_ids = prompts.Periodic(4, 20);
    request.max_tokens = 40;
    request.output = {.return_log_probs = true};
    requests_.push_back(std::move(request));
  }
  ASSERT_GT(requests_.size(), 4);
  ExpectSame(PlainAndFit());
}

TEST_P(CudaMedusaTest, BeamSearchesGoBesideThem) {
  requests_.resize(6);
  for (const size_t i : {size_t{1}, size_t{4}}) requests_[i].sampling = {.beam_width = 3};
  const Sinks expected = PlainAndFit();
  ExecutorOptions with = options_;
  with.drafts = DraftSource::kMedusa;
  const Sinks actual = Run(with);
  EXPECT_GT(stats_.drafts_accepted, 10);
  for (size_t i = 0; i < requests_.size(); ++i) {
    ExpectEqual(*actual[i], *expected[i], i);
    ASSERT_EQ(actual[i]->last.beams.size(), expected[i]->last.beams.size());
    for (size_t b = 0; b < actual[i]->last.beams.size(); ++b)
      EXPECT_EQ(actual[i]->last.beams[b].output_ids, expected[i]->last.beams[b].output_ids);
  }
}

// Rounding may then choose between tokens that are nearly as good.
TEST_P(CudaMedusaTest, WithoutTheModeGreedyTokensDifferAtTiesAlone) {
  constexpr float kTie = 0.15F;  // of logits
  options_.deterministic = false;
  std::erase_if(requests_, [](const Request& r) { return r.sampling.temperature.has_value(); });
  for (Request& request : requests_) {
    request.output.return_generation_logits = true;
    request.sampling = {};
    request.bad_words = {};
    request.embedding_bias = nullptr;
  }
  const Sinks expected = PlainAndFit();
  ExecutorOptions with = options_;
  with.drafts = DraftSource::kMedusa;
  const Sinks actual = Run(with);
  EXPECT_GT(stats_.drafts_accepted, 40);
  const auto vocab = static_cast<size_t>(engine_->config.vocab_size);
  size_t num_equal = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const auto [a, b] = std::ranges::mismatch(actual[i]->ids, expected[i]->ids);
    num_equal += a == actual[i]->ids.end() && b == expected[i]->ids.end() ? 1 : 0;
    if (a == actual[i]->ids.end() || b == expected[i]->ids.end()) continue;
    const float* const row =
        &expected[i]->logits[static_cast<size_t>(b - expected[i]->ids.begin()) * vocab];
    EXPECT_LE(row[*b] - row[*a], kTie) << "request " << i;
  }
  EXPECT_GE(num_equal, requests_.size() / 2);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaMedusaTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::golden

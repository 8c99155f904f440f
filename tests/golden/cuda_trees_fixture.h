// SPDX-License-Identifier: Apache-2.0
// Requests of every kind on a GPU, with trees of drafts and without: the answers are the same, bit
// for bit.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "builder/builder.h"
#include "even_clock.h"
#include "run_requests.h"
#include "speculation_cases.h"
#include "tensor/test_gpu.h"

namespace inflight::golden {

template <typename Param>
class CudaTreesTest : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    device_ = TestGpu().value().get();
    options_.max_batch_size = 8;
    options_.max_kv_tokens = 4096;
    options_.deterministic = true;
    options_.drafts = DraftSource::kNone;
  }

  void Open(const std::filesystem::path& dir, DType dtype) {
    auto opened = builder::Open(dir, *device_, {.dtype = dtype, .limits = {}});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    engine_ = *std::move(opened);
    requests_ = RequestsOfAllKinds(engine_->config.vocab_size);
  }

  Sinks Run(const ExecutorOptions& with, const executor::DraftWeights& draft = {}) {
    EvenClock clock;
    const auto executor = MakeExecutor(engine_, *device_, with, {}, draft, clock);
    Sinks sinks = RunAll<RowsSink>(*executor, requests_);
    executor->Shutdown(0);
    stats_ = executor->stats();
    return sinks;
  }

  // Without drafts.
  Sinks Plain() {
    Sinks sinks = Run(options_);
    EXPECT_EQ(stats_.tokens_drafted, 0);
    answers_.clear();
    for (size_t i = 0; i < requests_.size(); ++i) {
      answers_.push_back(requests_[i].input_ids);
      answers_.back().insert(answers_.back().end(), sinks[i]->ids.begin(), sinks[i]->ids.end());
    }
    return sinks;
  }

  void ExpectSame(const Sinks& expected, const std::vector<std::vector<int>>& choices = {}) {
    ExecutorOptions with = options_;
    with.drafts = DraftSource::kAuto;
    with.medusa_choices = choices;
    const Sinks actual = Run(with, draft_);
    EXPECT_GT(stats_.drafts_accepted, 40);
    EXPECT_GT(stats_.tokens_drafted, stats_.drafts_accepted);
    EXPECT_EQ(stats_.kv_blocks_used, 0);
    ExpectAllEqual(requests_, actual, expected);
    int told_drafted = 0;
    int told_accepted = 0;
    for (const auto& sink : actual) {
      told_drafted += sink->last.num_draft_tokens;
      told_accepted += sink->last.num_accepted_draft_tokens;
    }
    EXPECT_EQ(told_drafted, stats_.tokens_drafted);
    EXPECT_EQ(told_accepted, stats_.drafts_accepted);
  }

  // Each request, then one that goes on from its answer, one after another.
  void GoOnFromAnswers() {
    const size_t num_first = requests_.size();
    for (size_t i = 0; i < num_first; ++i) {
      Request next = requests_[i];
      next.input_ids = answers_[i];
      requests_.push_back(next);
    }
    options_.max_batch_size = 1;
  }

  Device* device_ = nullptr;
  std::shared_ptr<const model::Engine> engine_;
  executor::DraftWeights draft_;
  ExecutorOptions options_;
  ExecutorStats stats_;
  std::vector<Request> requests_;
  std::vector<std::vector<TokenId>> answers_;  // with their prompts
};

}  // namespace inflight::golden

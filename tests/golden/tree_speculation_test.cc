// SPDX-License-Identifier: Apache-2.0
// Trees of drafts change no answer. Who proposes them here knows the plain answers, and puts the
// right token among wrong ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "builder/builder.h"
#include "constants.h"
#include "even_clock.h"
#include "executor/cpu_backend.h"
#include "executor/executor.h"
#include "run_requests.h"
#include "speculation_cases.h"

namespace inflight::golden {
namespace {

using decoding::DraftTree;
using Sinks = std::vector<std::shared_ptr<RowsSink>>;

// Of some depths the right token is one of the first three choices, of others none.
class KnowingSource : public executor::TreeSource {
 public:
  KnowingSource(DraftTree tree, std::vector<std::vector<TokenId>> answers, int vocab_size)
      : tree_(std::move(tree)), answers_(std::move(answers)), vocab_size_(vocab_size) {}

  const DraftTree& tree() const override { return tree_; }

  Status Draft(std::span<const Ask> asks, model::Decoder&, Stream&) override {
    for (const Ask& ask : asks) {
      ask.drafts->clear();
      const auto answer = std::ranges::find_if(answers_, [&](const std::vector<TokenId>& a) {
        return a.size() > ask.tokens->size() &&
               std::equal(ask.tokens->begin(), ask.tokens->end(), a.begin());
      });
      if (answer == answers_.end()) continue;
      num_states_ += ask.state >= 0 ? 1 : 0;
      ++num_asks_;
      std::vector<bool> is_right;
      for (int i = 0; i < ask.num_nodes; ++i) {
        const DraftTree::Node& node = tree_[i];
        const size_t place = ask.tokens->size() + static_cast<size_t>(node.depth) - 1;
        const TokenId right = place < answer->size() ? (*answer)[place] : 0;
        const bool may_be = node.parent < 0 || is_right[static_cast<size_t>(node.parent)];
        is_right.push_back(may_be && place < answer->size() &&
                           static_cast<size_t>(node.choice) ==
                               (place * 7 + ask.tokens->size()) % 4);
        ask.drafts->push_back(is_right.back() ? right : (right + 1 + node.choice) % vocab_size_);
      }
    }
    return Status::Ok();
  }

  int num_asks_ = 0, num_states_ = 0;

 private:
  DraftTree tree_;
  std::vector<std::vector<TokenId>> answers_;
  int vocab_size_;
};

struct TreeSpeculationTest : testing::TestWithParam<DType> {
  void SetUp() override {
    auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = GetParam(), .limits = {}});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    engine = *std::move(opened);
    options.block_size = 64;
    options.max_batch_size = 8;
    options.max_kv_tokens = 4096;
    options.deterministic = true;
    requests = RequestsOfAllKinds(engine->config.vocab_size);
  }

  Sinks Plain() {
    const auto executor = MakeExecutor(engine, *device, options);
    Sinks sinks = RunAll<RowsSink>(*executor, requests);
    answers.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      answers.push_back(requests[i].input_ids);
      answers.back().insert(answers.back().end(), sinks[i]->ids.begin(), sinks[i]->ids.end());
    }
    return sinks;
  }

  // The same with trees; those that were accepted are counted.
  Sinks WithTrees(const DraftTree& tree) {
    ExecutorOptions with = options;
    with.drafts = DraftSource::kNgram;  // room for drafts
    with.max_draft_len = tree.size();
    auto plan = executor::PlanMemory(engine->config, engine->limits, device->kind(),
                                     engine->weight_bytes, true, with, device->FreeBytes());
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    const auto ops =
        ops::FindOps(*device, model::KernelShape(engine->config), {}, ops::OpChoice::kFixed);
    auto source = std::make_unique<KnowingSource>(tree, answers, engine->config.vocab_size);
    KnowingSource& knowing = *source;
    auto backend =
        executor::CreateCpuBackend(engine, *device, *plan, *ops, {.tree = std::move(source)});
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    auto executor = executor::CreateExecutor(std::move(*backend), with, clock);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    Sinks sinks = RunAll<RowsSink>(**executor, requests);
    (*executor)->Shutdown(0);
    EXPECT_GT(knowing.num_states_, 0);
    EXPECT_LE(knowing.num_states_, knowing.num_asks_);
    stats = (*executor)->stats();
    return sinks;
  }

  void ExpectSame(const Sinks& expected, const DraftTree& tree) {
    const Sinks actual = WithTrees(tree);
    EXPECT_GT(stats.drafts_accepted, 40);
    EXPECT_GT(stats.tokens_drafted, stats.drafts_accepted);
    ExpectAllEqual(requests, actual, expected);
  }

  EvenClock clock;
  std::shared_ptr<Device> device = Device::Cpu();
  std::shared_ptr<const model::Engine> engine;
  ExecutorOptions options;
  ExecutorStats stats;
  std::vector<Request> requests;
  std::vector<std::vector<TokenId>> answers;  // with their prompts
};

TEST_P(TreeSpeculationTest, EveryKindOfRequestIsAnsweredTheSame) {
  const Sinks expected = Plain();
  ExpectSame(expected, DraftTree::Default(4));
  ExpectSame(expected, *DraftTree::Make(std::vector<DraftTree::Path>{{1}, {0}, {1, 2}, {1, 0}}, 2));
}

TEST_P(TreeSpeculationTest, AlsoInChunksWithPausesAndWithoutReuse) {
  const Sinks expected = Plain();
  DraftTree tree = DraftTree::Default(4);
  tree.Cut(15);
  options.block_size = kBlockSize;
  options.max_num_tokens = 48;
  ExpectSame(expected, tree);
  options.max_kv_tokens = 256;
  options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
  ExpectSame(expected, tree);
  EXPECT_GT(stats.num_pauses, 0);
  options.enable_prefix_reuse = false;
  options.chunking_policy = ChunkingPolicy::kEqualProgress;
  ExpectSame(expected, tree);
}

// Keys and values of an accepted path are those of plain steps: who goes on from them sees no
// difference.
TEST_P(TreeSpeculationTest, WhatIsReusedIsWhatPlainStepsWrote) {
  options.block_size = kBlockSize;
  requests.resize(8);
  for (Request& request : requests) request.end_ids = {}, request.stop_words = {};
  Plain();
  const size_t num_first = requests.size();
  for (size_t i = 0; i < num_first; ++i) {
    Request next = requests[i];
    next.input_ids = answers[i];
    requests.push_back(next);
  }
  options.max_batch_size = 1;  // one after another, so that the second ones find the first's blocks
  const Sinks expected = Plain();
  DraftTree tree = DraftTree::Default(4);
  tree.Cut(15);
  ExpectSame(expected, tree);
  EXPECT_GT(stats.prompt_tokens_cached, 0);
}

TEST_P(TreeSpeculationTest, SlidingWindowsHoldNoDraftBack) {
  options.attention_windows = {32};
  options.sink_tokens = 4;
  options.block_size = kBlockSize;
  DraftTree tree = DraftTree::Default(4);
  tree.Cut(15);
  ExpectSame(Plain(), tree);
}

TEST_P(TreeSpeculationTest, LayersOfDifferentWindowsMoveTheirKeys) {
  options.attention_windows = {0, 32, 24};
  options.sink_tokens = 4;
  options.block_size = kBlockSize;
  options.max_num_tokens = 48;
  DraftTree tree = DraftTree::Default(4);
  tree.Cut(15);
  ExpectSame(Plain(), tree);
}

INSTANTIATE_TEST_SUITE_P(DTypes, TreeSpeculationTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::golden

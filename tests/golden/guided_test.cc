// SPDX-License-Identifier: Apache-2.0
// Guided requests of a real model: the demo model's answers are sequences of a list, by
// themselves, beside others, as beams, in several sequences, and under memory pressure. An answer
// that is drawn greedily is the likeliest way through the list, token by token, as the logits of
// the model tell it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "builder/builder.h"
#include "constants.h"
#include "decoding/list_guide.h"
#include "guide_ways.h"
#include "run_requests.h"
#ifdef INFLIGHT_GOLDEN_CUDA
#include "tensor/test_gpu.h"
#endif

namespace inflight::golden {
namespace {

using decoding::MakeListGuide;
using Ids = std::vector<TokenId>;
using Lists = Ways;

constexpr TokenId kEnd = 2;

class GuidedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    DType dtype = DType::kF32;
#ifdef INFLIGHT_GOLDEN_CUDA
    NEED_TEST_GPU();
    device_ = std::shared_ptr<Device>(TestGpu().value().get(), [](Device*) {});
    dtype = DType::kBF16;
#endif
    const model::EngineLimits limits = {
        .max_batch_size = 8, .max_num_tokens = 512, .max_seq_len = 512, .max_beam_width = 4};
    auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *device_, {.dtype = dtype, .limits = limits});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    engine_ = *std::move(opened);
  }

  Request Make(const Lists& lists) const {
    Request request;
    request.input_ids = {5, 9, 17, 33};
    request.max_tokens = 20;
    request.end_ids = {kEnd};
    request.guide = MakeListGuide(engine_->config.vocab_size, lists);
    return request;
  }

  std::unique_ptr<Executor> Start(ExecutorOptions options = {}) {
    options.block_size = kBlockSize;
    if (!options.max_kv_tokens) options.max_kv_tokens = 2048;
    options.deterministic = true;
    return MakeExecutor(engine_, *device_, options);
  }

  std::shared_ptr<Device> device_ = Device::Cpu();
  std::shared_ptr<const model::Engine> engine_;
};

bool IsOneOf(const Lists& lists, const Ids& ids) {
  return std::ranges::find(lists, ids) != lists.end();
}

TEST_F(GuidedTest, AGreedyAnswerIsTheLikeliestWayOfTheModelsOwnLogits) {
  const auto executor = Start();
  const Lists lists = SomeWays();
  Request request = Make(lists);
  request.output.return_log_probs = true;
  const auto sink = RunAll(*executor, {request})[0];
  ASSERT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
  EXPECT_TRUE(IsOneOf(lists, sink->ids));
  EXPECT_EQ(sink->last.finish_reason, FinishReason::kEndId);
  // The same way, step by step, by the raw logits of unguided requests of one token each.
  Ids known;
  for (size_t i = 0; i <= sink->ids.size(); ++i) {
    std::set<TokenId> allowed;
    for (const Ids& list : lists) {
      if (list.size() < known.size() || !std::equal(known.begin(), known.end(), list.begin()))
        continue;
      allowed.insert(list.size() == known.size() ? kEnd : list[known.size()]);
    }
    Request probe = request;
    probe.guide = nullptr;
    probe.input_ids.insert(probe.input_ids.end(), known.begin(), known.end());
    probe.max_tokens = 1;
    probe.output.return_generation_logits = true;
    probe.end_ids.clear();
    const auto logits = RunAll<LogitsSink>(*executor, {probe})[0]->logits;
    const auto logit = [&](TokenId id) { return logits[static_cast<size_t>(id)]; };
    const TokenId best = *std::ranges::max_element(allowed, {}, logit);
    double sum = 0;
    for (const TokenId id : allowed) sum += std::exp(double{logit(id)} - logit(best));
    if (i == sink->ids.size()) {
      EXPECT_EQ(best, kEnd);
      break;
    }
    ASSERT_EQ(sink->ids[i], best) << i;
    EXPECT_NEAR(sink->log_probs[i], -std::log(sum), 1e-4) << i;
    known.push_back(best);
  }
}

TEST_F(GuidedTest, EverySequenceOfARequestIsGuidedByItself) {
  const auto executor = Start();
  const Lists lists = SomeWays();
  Request request = Make(lists);
  request.sampling.num_return_sequences = 4;
  request.sampling.top_p = 1.0F;
  request.sampling.temperature = 3.0F;
  request.streaming = true;
  struct Sink : CollectingSink {
    void OnResponse(Response response) override {
      auto& of = sequences[static_cast<size_t>(response.sequence_index)];
      of.insert(of.end(), response.output_ids.begin(), response.output_ids.end());
      CollectingSink::OnResponse(std::move(response));
    }
    std::array<Ids, 4> sequences;
  };
  const auto sink = RunAll<Sink>(*executor, {request})[0];
  ASSERT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
  for (const Ids& ids : sink->sequences) EXPECT_TRUE(IsOneOf(lists, ids));
  EXPECT_GT((std::set<Ids>(sink->sequences.begin(), sink->sequences.end()).size()), 1U);
}

TEST_F(GuidedTest, EveryBeamStandsAtItsOwnPlace) {
  const auto executor = Start();
  const Lists lists = SomeWays();
  Request request = Make(lists);
  request.sampling.beam_width = 4;
  request.sampling.early_stopping = 0;
  const auto sink = RunAll(*executor, {request})[0];
  ASSERT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
  ASSERT_EQ(sink->last.beams.size(), 4U);
  std::set<Ids> found;
  for (const Beam& beam : sink->last.beams) {
    EXPECT_TRUE(IsOneOf(lists, beam.output_ids));
    EXPECT_EQ(beam.finish_reason, FinishReason::kEndId);
    found.insert(beam.output_ids);
  }
  EXPECT_EQ(found.size(), 4U);
}

TEST_F(GuidedTest, BeamsWithNoWayLeftFailTheirRequest) {
  const auto executor = Start();
  Request request = Make({{40, 41}});
  request.sampling.beam_width = 2;
  request.bad_words = {{41}};
  const auto sink = RunAll(*executor, {request})[0];
  EXPECT_EQ(sink->last.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(sink->last.status.field(), "guide");
}

TEST_F(GuidedTest, ARequestWithNoWayLeftEndsWithItsReasonAndOthersGoOn) {
  const auto executor = Start();
  Request stuck = Make({{40, 41, 42}});
  stuck.bad_words = {{42}};
  stuck.streaming = true;
  Request free = Make({});
  free.guide = nullptr;
  free.end_ids.clear();
  const auto sinks = RunAll(*executor, {stuck, free});
  EXPECT_EQ(sinks[0]->last.status.field(), "guide");
  EXPECT_EQ(sinks[0]->ids, (Ids{40, 41}));
  EXPECT_TRUE(sinks[1]->last.status.ok());
  EXPECT_EQ(sinks[1]->ids.size(), 20U);
  EXPECT_EQ(executor->stats().kv_blocks_used, 0);
}

TEST_F(GuidedTest, WithoutAnEndIdTheAnswerEndsWhereItIsWhole) {
  const auto executor = Start();
  Request request = Make({{40, 41, 42}});
  request.end_ids.clear();
  request.output.num_top_log_probs = 2;
  const auto sink = RunAll(*executor, {request})[0];
  ASSERT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
  EXPECT_EQ(sink->ids, (Ids{40, 41, 42}));
  EXPECT_EQ(sink->last.finish_reason, FinishReason::kEndId);
  ASSERT_EQ(sink->last.top_log_probs.size(), 6U);
  EXPECT_EQ(sink->last.top_log_probs[0].id, 40);
  EXPECT_EQ(sink->last.top_log_probs[0].log_prob, 0.0F);
}

TEST_F(GuidedTest, AnAnswerThatMaxTokensCutsEndsForItsLength) {
  const auto executor = Start();
  Request request = Make({{40, 41, 42, 43}});
  request.max_tokens = 2;
  const auto sink = RunAll(*executor, {request})[0];
  EXPECT_EQ(sink->ids, (Ids{40, 41}));
  EXPECT_EQ(sink->last.finish_reason, FinishReason::kLength);
}

TEST_F(GuidedTest, NothingKeepsAGuideWhoseRequestIsOver) {
  for (const int width : {1, 3}) {
    const auto executor = Start();
    Request request = Make(SomeWays());
    request.sampling.beam_width = width;
    const std::weak_ptr<const Guide> guide = request.guide;
    const auto sinks = RunAll(*executor, {std::move(request)});
    EXPECT_TRUE(sinks[0]->last.status.ok());
    executor->Shutdown(/*drain_ms=*/0);  // the step loop has let go of it
    EXPECT_TRUE(guide.expired()) << width;
  }
}

// A long list, so that what is paused has to go on from its middle.
TEST_F(GuidedTest, PausedRequestsGoOnWhereTheyStood) {
  std::vector<Request> requests;
  Lists ways;
  for (int i = 0; i < 6; ++i) {
    Ids list;
    for (int t = 0; t < 60; ++t) list.push_back(40 + (7 * i + 3 * t) % 50);
    ways.push_back(list);
  }
  for (int i = 0; i < 6; ++i) {
    Request request = Make(ways);
    request.input_ids.assign(static_cast<size_t>(20 + i), 50 + i);
    request.max_tokens = 80;
    requests.push_back(std::move(request));
  }
  const auto executor = Start({.max_batch_size = 6,
                               .max_kv_tokens = 256,
                               .scheduler_policy = SchedulerPolicy::kMaxUtilization});
  for (const auto& sink : RunAll(*executor, requests)) {
    ASSERT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
    EXPECT_TRUE(IsOneOf(ways, sink->ids));
  }
  executor->Shutdown(0);
  EXPECT_GE(executor->stats().num_pauses, 1);
}

}  // namespace
}  // namespace inflight::golden

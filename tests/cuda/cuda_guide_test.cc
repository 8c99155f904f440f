// SPDX-License-Identifier: Apache-2.0
// Guided rows beside free ones on a GPU: the masks of each step reach the rows that they are for,
// and no others.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "decoding/list_guide.h"
#include "gpu_test.h"
#include "requests.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

using decoding::ListGuide;
using decoding::ListGuideOptions;
using decoding::MakeListGuide;
using Lists = std::vector<std::vector<TokenId>>;

class CudaGuideTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) engine_ = RandomEngine(TinyLlama(), TinyLimits(), device());
  }
  void TearDown() override { unsetenv("INFLIGHT_CUDA_GRAPHS"); }

  int vocab_size() const { return engine_->config.vocab_size; }

  std::unique_ptr<Executor> Start(DraftSource drafts = DraftSource::kNone) {
    ExecutorOptions options;
    options.block_size = 16;
    options.max_kv_tokens = 8192;
    options.deterministic = true;
    options.drafts = drafts;
    if (drafts != DraftSource::kNone) options.max_draft_len = 6;
    executor::DraftWeights draft;
    if (drafts == DraftSource::kModel) draft.model = engine_;
    return MakeExecutor(engine_, device(), options, {}, draft);
  }

  // All its ways stand in its prompt.
  Request GuidedAndTold(int i) const {
    Request request = Guided(i);
    for (const auto& way : WaysOf(i))
      request.input_ids.insert(request.input_ids.end(), way.begin(), way.end());
    return request;
  }

  static void ExpectSame(const CollectingSink& actual, const CollectingSink& expected) {
    EXPECT_EQ(actual.ids, expected.ids);
    EXPECT_EQ(actual.log_probs, expected.log_probs);
    EXPECT_EQ(actual.last.cum_log_prob, expected.last.cum_log_prob);
    EXPECT_EQ(actual.last.finish_reason, expected.last.finish_reason);
    EXPECT_EQ(actual.last.status, expected.last.status);
  }

  // Of so many ways that begin alike, each of other tokens: the last of the vocabulary among them.
  Lists WaysOf(int i) const {
    Lists ways;
    for (int way = 0; way < 5; ++way) {
      std::vector<TokenId> ids = {vocab_size() - 1 - i};
      for (int t = 0; t < 24; ++t) ids.push_back((31 * i + 17 * way + 7 * t) % vocab_size());
      ways.push_back(ids);
    }
    return ways;
  }

  Request Guided(int i) const {
    Request request = RandomRequest(5 + 3 * i, 40, vocab_size(), static_cast<unsigned>(i));
    request.guide = MakeListGuide(vocab_size(), WaysOf(i));
    if (i % 3 == 1) {
      request.sampling.top_k = 20;
      request.sampling.temperature = 2.0F;
    } else if (i % 3 == 2) {
      request.sampling.top_p = 0.9F;
      request.sampling.temperature = 3.0F;
      request.sampling.repetition_penalty = 1.3F;
    }
    request.sampling.seed = static_cast<uint64_t>(i);
    return request;
  }

  void ExpectWays(const Request& request, int i, const CollectingSink& sink) const {
    SCOPED_TRACE("guided request " + std::to_string(i));
    ASSERT_TRUE(sink.last.status.ok()) << sink.last.status.ToString();
    EXPECT_THAT(WaysOf(i), ::testing::Contains(sink.ids));
    EXPECT_EQ(sink.last.finish_reason, FinishReason::kEndId);
    for (const float log_prob : sink.log_probs) EXPECT_LE(log_prob, 1e-6F);
    if (!request.output.return_log_probs) {
      EXPECT_TRUE(sink.log_probs.empty());
    }
  }

  std::shared_ptr<const model::Engine> engine_;
};

// Free rows give the same beside guided ones as without, with graphs and without.
// A step that was launched before the answers were there holds blocks until it ends.
void ExpectAllBlocksReturn(const Executor& executor) {
  for (int i = 0; i < 2000 && executor.stats().kv_blocks_used > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(executor.stats().kv_blocks_used, 0);
}

TEST_F(CudaGuideTest, GuidedRowsStandBesideFreeOnes) {
  std::vector<Request> free;
  for (int i = 0; i < 12; ++i)
    free.push_back(RandomRequest(3 + 7 * i, 40, vocab_size(), static_cast<unsigned>(100 + i)));
  for (const char* graphs : {"1", "0"}) {
    setenv("INFLIGHT_CUDA_GRAPHS", graphs, 1);
    const auto expected = RunAll(*Start(), free);
    std::vector<Request> mixed;
    for (int i = 0; i < 12; ++i) {
      mixed.push_back(free[static_cast<size_t>(i)]);
      mixed.push_back(Guided(i));
    }
    const auto executor = Start();
    const auto sinks = RunAll(*executor, mixed);
    for (size_t i = 0; i < free.size(); ++i) {
      EXPECT_EQ(sinks[2 * i]->ids, expected[i]->ids) << i;
      EXPECT_EQ(sinks[2 * i]->log_probs, expected[i]->log_probs) << i;
      ExpectWays(mixed[2 * i + 1], static_cast<int>(i), *sinks[2 * i + 1]);
    }
    ExpectAllBlocksReturn(*executor);
  }
}

// The host reads their logits too: the likeliest tokens are those that may come.
TEST_F(CudaGuideTest, TheLikeliestTokensAreThoseThatMayCome) {
  Request request = Guided(3);
  request.output.num_top_log_probs = 8;
  const auto executor = Start();
  const auto sink = RunAll(*executor, {request})[0];
  ExpectWays(request, 3, *sink);
  const Lists ways = WaysOf(3);
  ASSERT_EQ(sink->last.top_log_probs.size(), 8 * sink->ids.size());
  for (size_t t = 0; t < sink->ids.size(); ++t) {
    std::set<TokenId> allowed;
    for (const auto& way : ways)
      if (std::equal(sink->ids.begin(), sink->ids.begin() + static_cast<ptrdiff_t>(t), way.begin()))
        allowed.insert(way[t]);
    for (size_t k = 0; k < 8; ++k) {
      const TopLogProb& likely = sink->last.top_log_probs[8 * t + k];
      EXPECT_EQ(std::isfinite(likely.log_prob), k < allowed.size());
      if (k < allowed.size()) {
        EXPECT_TRUE(allowed.contains(likely.id));
      }
    }
  }
}

TEST_F(CudaGuideTest, BeamsAreGuidedEachByItself) {
  Request request = Guided(0);
  request.sampling = {.beam_width = 4};
  request.end_ids = {0};
  const auto executor = Start();
  const auto sink = RunAll(*executor, {request})[0];
  ASSERT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
  ASSERT_EQ(sink->last.beams.size(), 4U);
  for (const Beam& beam : sink->last.beams)
    EXPECT_THAT(WaysOf(0), ::testing::Contains(beam.output_ids));
}

TEST_F(CudaGuideTest, AGuideThatLeavesNothingFailsItsRequestAlone) {
  Request lost = Guided(0);
  lost.guide = std::make_shared<ListGuide>(
      ListGuideOptions{.num_tokens = vocab_size(), .lists = WaysOf(0), .num_masks = 5});
  const auto executor = Start();
  const auto sinks = RunAll(*executor, {lost, Guided(1), Guided(2)});
  EXPECT_EQ(sinks[0]->last.status.field(), "guide");
  for (int i = 1; i < 3; ++i) ExpectWays(Guided(i), i, *sinks[static_cast<size_t>(i)]);
  ExpectAllBlocksReturn(*executor);
}

// Whoever proposes on a GPU. Each way ends among drafts, some by an end id; one request has a guide
// whose masks come to nothing there; free rows stand beside.
TEST_F(CudaGuideTest, DraftsHaveTheMasksOfTheirPlaces) {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request = GuidedAndTold(i);
    request.output.return_log_probs = i % 4 != 3;
    request.streaming = i % 2 == 0;
    if (i % 4 == 1) request.end_ids = {1};
    if (i % 4 == 2) request.output.num_top_log_probs = 3;
    requests.push_back(request);
    request.guide = nullptr;
    request.end_ids.clear();
    requests.push_back(request);
  }
  requests[4].guide = std::make_shared<ListGuide>(
      ListGuideOptions{.num_tokens = vocab_size(), .lists = WaysOf(2), .num_masks = 9});
  for (const char* graphs : {"1", "0"}) {
    setenv("INFLIGHT_CUDA_GRAPHS", graphs, 1);
    const auto expected = RunAll(*Start(), requests);
    EXPECT_EQ(expected[4]->ids.size(), 9U);
    EXPECT_EQ(expected[4]->last.status.field(), "guide");
    for (const DraftSource source :
         {DraftSource::kNgram, DraftSource::kSuffix, DraftSource::kModel}) {
      SCOPED_TRACE("source " + std::to_string(static_cast<int>(source)) + ", graphs " + graphs);
      const auto executor = Start(source);
      const auto sinks = RunAll(*executor, requests);
      int num_of_guided = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE("request " + std::to_string(i));
        ExpectSame(*sinks[i], *expected[i]);
        if (requests[i].guide == nullptr || i == 4) continue;
        EXPECT_THAT(WaysOf(static_cast<int>(i) / 2), ::testing::Contains(sinks[i]->ids));
        num_of_guided += sinks[i]->last.num_accepted_draft_tokens;
      }
      if (source != DraftSource::kModel) {  // which draws without the guide
        EXPECT_GT(num_of_guided, 0);
      }
      ExpectAllBlocksReturn(*executor);
    }
  }
}

// The host judges those, and finds their masks by itself.
TEST_F(CudaGuideTest, DraftsOfAClientAreJudgedByTheGuide) {
  for (int i = 0; i < 3; ++i) {
    Request request = Guided(i);
    request.output.return_log_probs = false;
    const auto plain = RunAll(*Start(DraftSource::kNgram), {request})[0];
    request.draft_ids.assign(plain->ids.begin(), plain->ids.begin() + 3);
    request.draft_ids.push_back(plain->ids[3] == 2 ? 3 : 2);
    const auto sink = RunAll(*Start(DraftSource::kNgram), {request})[0];
    ASSERT_TRUE(sink->last.status.ok()) << sink->last.status.ToString();
    EXPECT_EQ(sink->ids, std::vector<TokenId>(plain->ids.begin(), plain->ids.begin() + 4));
    EXPECT_EQ(sink->last.num_accepted_draft_tokens, 3);
  }
}

}  // namespace
}  // namespace inflight::gpu

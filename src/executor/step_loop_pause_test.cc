// SPDX-License-Identifier: Apache-2.0
// Requests that give up their blocks for others, and resume.
#include <gtest/gtest.h>

#include "executor/step_loop_fixture.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::ExpectedOutput;
using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;

// Four requests that fit at first and not to their ends: 6 blocks of 4 tokens at full length each.
class PauseTest : public StepLoopTest {
 protected:
  HarnessOptions Tight(int64_t num_blocks = 12) const {
    HarnessOptions options = Small();
    options.backend.info.kv_groups[0].num_blocks = num_blocks;
    options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Depths, PauseTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

TEST_P(PauseTest, PausedRequestYieldsWhatItYieldsAlone) {
  for (const bool reuse : {true, false}) {
    HarnessOptions options = Tight();
    options.enable_prefix_reuse = reuse;
    LoopHarness harness(std::move(options));
    std::vector<std::pair<Request, std::shared_ptr<RecordingSink>>> clients;
    for (uint64_t i = 1; i <= 4; ++i) {
      Request request = MakeRequest(7, 18, 20 * i);
      request.streaming = i % 2 == 0;
      request.output.return_log_probs = true;
      clients.emplace_back(request, std::make_shared<RecordingSink>());
      harness.Enqueue(request, clients.back().second);
    }
    int most_paused = 0;
    while (harness.Step()) {
      most_paused = std::max(most_paused, harness.loop.stats().num_paused_requests);
    }
    for (const auto& [request, sink] : clients) {
      ExpectWhole(harness, request, *sink);
      const auto expected = ExpectedOutput(request, 97);
      EXPECT_EQ(sink->log_probs, expected.log_probs);
      EXPECT_EQ(sink->last().cum_log_prob, expected.cum_log_prob);
      EXPECT_EQ(sink->last().num_cached_tokens, 0) << "what a resume reuses is no reused prompt";
    }
    const ExecutorStats stats = harness.loop.stats();
    EXPECT_GE(most_paused, 1);
    EXPECT_GE(stats.num_pauses, 2);
    EXPECT_GT(stats.tokens_recomputed, 0);
    EXPECT_EQ(stats.num_paused_requests, 0);
    EXPECT_EQ(stats.prompt_tokens, 4 * 7) << "each prompt is counted once";
    EXPECT_EQ(stats.tokens_generated, 4 * 18);
    EXPECT_EQ(stats.requests_completed, 4);
    EXPECT_EQ(stats.kv_blocks_used, 0);
  }
}

TEST_P(PauseTest, PausedRequestIsActiveAndCanBeCancelledOrTimeOut) {
  for (const bool cancels : {true, false}) {
    LoopHarness harness(Tight(/*num_blocks=*/8));
    const Request first = MakeRequest(7, 18, 20);
    auto whole = std::make_shared<RecordingSink>();
    harness.Enqueue(first, whole);
    Request request = MakeRequest(7, 18, 60);
    if (!cancels) request.timeout_ms = 16;  // a step takes 1 ms; the first one needs 18
    auto paused = std::make_shared<RecordingSink>();
    const RequestId id = harness.Enqueue(request, paused);
    while (harness.loop.stats().num_paused_requests == 0) ASSERT_TRUE(harness.Step());
    EXPECT_EQ(harness.loop.stats().num_active_requests, 2);
    EXPECT_EQ(harness.loop.stats().num_queued_requests, 0);
    ASSERT_FALSE(paused->is_done());
    if (cancels) harness.inbox.Cancel(id);
    harness.RunUntilIdle();
    EXPECT_EQ(paused->num_final, 1);
    EXPECT_EQ(paused->last().finish_reason,
              cancels ? FinishReason::kCancelled : FinishReason::kTimedOut);
    ExpectWhole(harness, first, *whole);
    EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
    EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
  }
}

TEST_P(PauseTest, RequestThatCanNeverFitFailsInsteadOfBeingPausedForEver) {
  LoopHarness harness(Tight(/*num_blocks=*/4));  // CreateExecutor would lower max_seq_len
  auto big = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(10, 20, 1), big);
  const Request small = MakeRequest(3, 4, 50);
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(small, sink);
  harness.RunUntilIdle();
  EXPECT_EQ(big->num_final, 1);
  EXPECT_EQ(big->last().status.code(), StatusCode::kResourceExhausted);
  ExpectWhole(harness, small, *sink);
}

TEST_P(PauseTest, FaultEndsPausedRequestsToo) {
  HarnessOptions options = Tight(/*num_blocks=*/8);
  options.backend.fail_launch_of_step = 15;
  LoopHarness harness(std::move(options));
  auto a = std::make_shared<RecordingSink>();
  auto b = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(7, 18, 20), a);
  harness.Enqueue(MakeRequest(7, 18, 60), b);
  while (harness.loop.stats().num_paused_requests == 0) ASSERT_TRUE(harness.Step());
  harness.RunUntilIdle();
  for (const auto& sink : {a, b}) {
    EXPECT_EQ(sink->num_final, 1);
    EXPECT_EQ(sink->last().status.code(), StatusCode::kInternal);
  }
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
  EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
}

}  // namespace
}  // namespace inflight::executor

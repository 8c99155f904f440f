// SPDX-License-Identifier: Apache-2.0
// A step loop that is brought to rest and goes on.
#include <gtest/gtest.h>

#include "executor/rest_gate.h"
#include "executor/step_loop_fixture.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;

using Sinks = std::vector<std::shared_ptr<RecordingSink>>;

class RestTest : public StepLoopTest {
 protected:
  HarnessOptions Resting() {
    HarnessOptions options = Small();
    options.rest = &gate;
    return options;
  }
  bool Rests() {
    return gate.Wait([] { return true; });
  }
  static std::vector<Request> FourRequests() {
    std::vector<Request> requests;
    for (uint64_t i = 1; i <= 4; ++i) {
      requests.push_back(MakeRequest(5, 9, 20 * i));
      requests.back().streaming = i % 2 == 0;
    }
    return requests;
  }
  static Sinks EnqueueAll(LoopHarness& harness, const std::vector<Request>& requests) {
    Sinks sinks;
    for (const Request& request : requests) {
      sinks.push_back(std::make_shared<RecordingSink>());
      EXPECT_NE(harness.Enqueue(request, sinks.back()), 0u);
    }
    return sinks;
  }

  RestGate gate;
};

INSTANTIATE_TEST_SUITE_P(Depths, RestTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

TEST_P(RestTest, WhoIsKeptYieldsWhatItYieldsAloneUnderEachPolicy) {
  for (const SchedulerPolicy policy :
       {SchedulerPolicy::kMaxUtilization, SchedulerPolicy::kGuaranteedNoEvict,
        SchedulerPolicy::kStaticBatch}) {
    for (const bool chunks : {true, false}) {
      HarnessOptions options = Resting();
      options.scheduler_policy = policy;
      options.enable_chunked_prefill = chunks;
      LoopHarness harness(std::move(options));
      std::vector<Request> requests = FourRequests();
      Sinks sinks = EnqueueAll(harness, requests);
      for (int rest = 0; rest < 3; ++rest) {
        for (int i = 0; i < 3 + rest; ++i) harness.Step();
        gate.Ask(SleepMode::kKeep);
        harness.RunUntilIdle();
        ASSERT_TRUE(Rests());
        const ExecutorStats stats = harness.loop.stats();
        EXPECT_EQ(stats.kv_blocks_used, 0);
        EXPECT_EQ(stats.num_paused_requests, stats.num_active_requests);
        EXPECT_TRUE(rest > 0 || stats.num_paused_requests > 0);
        const int64_t num_launched = harness.backend.num_launched();
        EXPECT_EQ(harness.backend.num_outstanding(), 0);
        if (rest == 0) {  // who comes now waits
          requests.push_back(MakeRequest(3, 4, 7));
          sinks.push_back(std::make_shared<RecordingSink>());
          harness.Enqueue(requests.back(), sinks.back());
          harness.RunUntilIdle();
          EXPECT_EQ(harness.loop.stats().num_queued_requests, 1);
        }
        EXPECT_EQ(harness.backend.num_launched(), num_launched);
        gate.GoOn();
      }
      harness.RunUntilIdle();
      for (size_t i = 0; i < requests.size(); ++i) ExpectWhole(harness, requests[i], *sinks[i]);
      EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
      EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
      EXPECT_EQ(harness.loop.stats().requests_completed, 5);
    }
  }
}

TEST_P(RestTest, WhoIsWaitedForEndsFirstAndNobodyElseBegins) {
  LoopHarness harness(Resting());
  std::vector<Request> requests = FourRequests();
  requests.push_back(MakeRequest(3, 4, 7));  // for whom there is no row
  const Sinks sinks = EnqueueAll(harness, requests);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.Step());
  gate.Ask(SleepMode::kWait);
  harness.RunUntilIdle();
  ASSERT_TRUE(Rests());
  for (size_t i = 0; i < 4; ++i) ExpectWhole(harness, requests[i], *sinks[i]);
  EXPECT_EQ(harness.loop.stats().num_pauses, 0);
  EXPECT_EQ(harness.loop.stats().num_queued_requests, 1);
  EXPECT_TRUE(sinks[4]->responses.empty());
  gate.GoOn();
  harness.RunUntilIdle();
  ExpectWhole(harness, requests[4], *sinks[4]);
}

TEST_P(RestTest, AnAbortEndsAllThatAreThereAndNobodyWhoComesLater) {
  LoopHarness harness(Resting());
  std::vector<Request> requests = FourRequests();
  requests.push_back(MakeRequest(3, 4, 7));
  const Sinks sinks = EnqueueAll(harness, requests);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.Step());
  gate.Ask(SleepMode::kAbort);
  harness.RunUntilIdle();
  ASSERT_TRUE(Rests());
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->num_final, 1);
    EXPECT_EQ(sink->last().finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(sink->last().status, Status::Ok());
  }
  EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
  const Sinks later = EnqueueAll(harness, {requests[4]});
  harness.RunUntilIdle();
  EXPECT_TRUE(later[0]->responses.empty());
  gate.GoOn();
  harness.RunUntilIdle();
  ExpectWhole(harness, requests[4], *later[0]);
}

TEST_P(RestTest, CancelsAndDeadlinesHoldWhileItRests) {
  LoopHarness harness(Resting());
  std::vector<Request> requests = FourRequests();
  requests[1].timeout_ms = 500;
  const Sinks sinks = EnqueueAll(harness, requests);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.Step());
  gate.Ask(SleepMode::kKeep);
  harness.RunUntilIdle();
  ASSERT_TRUE(Rests());
  EXPECT_GT(harness.loop.next_turn_ns(), harness.clock.NowNs()) << "it does not turn for nothing";
  EXPECT_LT(harness.loop.next_turn_ns(), kNever);
  harness.inbox.Cancel(1);
  harness.RunUntilIdle();
  EXPECT_EQ(sinks[0]->num_final, 1);
  EXPECT_EQ(sinks[0]->last().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(sinks[1]->num_final, 0);
  harness.clock.AdvanceNs(1'000'000'000);
  harness.RunUntilIdle();
  EXPECT_EQ(sinks[1]->num_final, 1);
  EXPECT_EQ(sinks[1]->last().finish_reason, FinishReason::kTimedOut);
  gate.GoOn();
  harness.RunUntilIdle();
  ExpectWhole(harness, requests[2], *sinks[2]);
  ExpectWhole(harness, requests[3], *sinks[3]);
}

TEST_P(RestTest, ASecondRestIsOneAlsoWhereTheLoopHasNotTurnedBetween) {
  LoopHarness harness(Resting());
  const std::vector<Request> requests = FourRequests();
  const Sinks sinks = EnqueueAll(harness, requests);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.Step());
  for (const SleepMode mode : {SleepMode::kKeep, SleepMode::kWait, SleepMode::kAbort}) {
    gate.Ask(mode);
    harness.RunUntilIdle();
    ASSERT_TRUE(Rests());
    gate.GoOn();
  }
  for (const auto& sink : sinks) EXPECT_EQ(sink->num_final, 1) << "the last one was an abort";
  harness.RunUntilIdle();
  const Sinks later = EnqueueAll(harness, requests);
  harness.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) ExpectWhole(harness, requests[i], *later[i]);
}

TEST_P(RestTest, NoBlockIsKnownAfterwards) {
  LoopHarness harness(Resting());
  const Request request = MakeRequest(12, 4, 3);
  const auto run = [&] {
    const Sinks sinks = EnqueueAll(harness, {request});
    harness.RunUntilIdle();
    ExpectWhole(harness, request, *sinks[0]);
    return sinks[0]->last().num_cached_tokens;
  };
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(run(), 8);
  gate.Ask(SleepMode::kKeep);
  harness.RunUntilIdle();
  ASSERT_TRUE(Rests());
  gate.GoOn();
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(run(), 8);
}

TEST_P(RestTest, WhoIsCalledBackBeforeItRestsGoesOn) {
  LoopHarness harness(Resting());
  const std::vector<Request> requests = FourRequests();
  const Sinks sinks = EnqueueAll(harness, requests);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.Step());
  gate.Ask(SleepMode::kWait);
  ASSERT_TRUE(harness.Step());
  EXPECT_TRUE(gate.Cancel());
  EXPECT_FALSE(Rests());
  gate.GoOn();
  harness.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) ExpectWhole(harness, requests[i], *sinks[i]);
}

TEST_P(RestTest, AFaultWhileItComesToRestEndsAll) {
  HarnessOptions options = Resting();
  options.backend.fail_collect_of_step = 6;
  LoopHarness harness(std::move(options));
  const Sinks sinks = EnqueueAll(harness, FourRequests());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.Step());
  gate.Ask(SleepMode::kWait);
  harness.RunUntilIdle();
  EXPECT_TRUE(harness.loop.has_fault());
  EXPECT_FALSE(Rests());
  for (const auto& sink : sinks) EXPECT_EQ(sink->num_final, 1);
}

}  // namespace
}  // namespace inflight::executor

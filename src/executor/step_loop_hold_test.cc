// SPDX-License-Identifier: Apache-2.0
// Requests whose clients do not read: no tokens are made for them until they do.
#include <gtest/gtest.h>

#include <random>

#include "executor/rest_gate.h"
#include "executor/step_loop_fixture.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::ExpectedOutput;
using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;

constexpr int64_t kPlaceNs = 100'000'000;  // for so long a held request keeps its blocks

class HoldTest : public StepLoopTest {
 protected:
  static Request Streaming(uint64_t seed) {
    Request request = MakeRequest(7, 18, seed);
    request.streaming = true;
    return request;
  }
};

INSTANTIATE_TEST_SUITE_P(Depths, HoldTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

TEST_P(HoldTest, AHeldRequestYieldsWhatIsUnderWayAndLaterTheRestWhileOthersGoOn) {
  for (const bool keeps_place : {true, false}) {
    LoopHarness harness(Small());
    const Request request = Streaming(20);
    const Request other = Streaming(60);
    const auto held = std::make_shared<RecordingSink>();
    const auto free = std::make_shared<RecordingSink>();
    const RequestId id = harness.Enqueue(request, held);
    harness.Enqueue(other, free);
    while (held->ids.size() < 4) ASSERT_TRUE(harness.Step());
    const size_t num_before = held->ids.size();
    harness.inbox.Hold(id, true);
    harness.RunUntilIdle();
    ExpectWhole(harness, other, *free);
    EXPECT_FALSE(held->is_done());
    EXPECT_LE(held->ids.size(), num_before + static_cast<size_t>(depth()));
    EXPECT_EQ(harness.loop.stats().num_active_requests, 1);
    EXPECT_GT(harness.loop.stats().kv_blocks_used, 0);
    EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
    EXPECT_LE(harness.loop.next_turn_ns(), harness.clock.NowNs() + kPlaceNs);

    if (!keeps_place) {
      const size_t num_held = held->ids.size();
      harness.clock.AdvanceNs(kPlaceNs);
      harness.RunUntilIdle();
      EXPECT_EQ(held->ids.size(), num_held);
      EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
      EXPECT_EQ(harness.loop.stats().num_paused_requests, 1);
      EXPECT_EQ(harness.loop.stats().num_active_requests, 1);
      EXPECT_EQ(harness.loop.next_turn_ns(), kNever);
    }
    harness.inbox.Hold(id, false);
    harness.RunUntilIdle();
    ExpectWhole(harness, request, *held);
    EXPECT_EQ(harness.loop.stats().num_pauses, keeps_place ? 0 : 1);
    EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
    EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
  }
}

TEST_P(HoldTest, AHeldRequestEndsByACancelADeadlineAndTheShutdown) {
  enum class End { kCancel, kDeadline, kShutdown };
  for (const End end : {End::kCancel, End::kDeadline, End::kShutdown}) {
    for (const bool keeps_place : {true, false}) {
      LoopHarness harness(Small());
      Request request = Streaming(20);
      if (end == End::kDeadline) request.timeout_ms = keeps_place ? 50 : 500;
      const auto sink = std::make_shared<RecordingSink>();
      const RequestId id = harness.Enqueue(request, sink);
      while (sink->ids.size() < 4) ASSERT_TRUE(harness.Step());
      harness.inbox.Hold(id, true);
      harness.RunUntilIdle();
      if (!keeps_place) {
        harness.clock.AdvanceNs(kPlaceNs);
        harness.RunUntilIdle();
        ASSERT_EQ(harness.loop.stats().num_paused_requests, 1);
      }
      ASSERT_FALSE(sink->is_done());
      if (end == End::kCancel) harness.inbox.Cancel(id);
      if (end == End::kDeadline) {
        ASSERT_NE(harness.loop.next_turn_ns(), kNever);
        harness.clock.AdvanceNs(harness.loop.next_turn_ns() - harness.clock.NowNs());
      }
      if (end == End::kShutdown) harness.inbox.CancelAllAt(0);
      harness.RunUntilIdle();
      EXPECT_EQ(sink->num_final, 1);
      EXPECT_EQ(sink->last().finish_reason,
                end == End::kDeadline ? FinishReason::kTimedOut : FinishReason::kCancelled);
      EXPECT_EQ(harness.loop.stats().num_active_requests, 0);
      EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
      EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
      EXPECT_EQ(harness.loop.next_turn_ns(), kNever);
      harness.inbox.Hold(id, false);  // of one that has ended
      harness.RunUntilIdle();
    }
  }
}

TEST_P(HoldTest, OneThatWaitsForItsStartLetsOthersPassAndStartsLater) {
  HarnessOptions options = Small();
  options.max_queue_delay_ns = 5'000'000;
  LoopHarness harness(std::move(options));
  const auto run = [&harness] {
    harness.RunUntilIdle();
    harness.clock.AdvanceNs(5'000'000);
    harness.RunUntilIdle();
  };
  const Request request = Streaming(20);
  const Request other = Streaming(60);
  const auto held = std::make_shared<RecordingSink>();
  const auto free = std::make_shared<RecordingSink>();
  const RequestId id = harness.Enqueue(request, held);
  harness.inbox.Hold(id, true);
  harness.Enqueue(other, free);
  run();
  ExpectWhole(harness, other, *free);
  EXPECT_TRUE(held->responses.empty());
  EXPECT_EQ(harness.loop.stats().num_queued_requests, 1);
  EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
  harness.inbox.Hold(id, false);
  run();
  ExpectWhole(harness, request, *held);
  EXPECT_EQ(harness.loop.stats().num_pauses, 0);
}

// The held one has all blocks but one.
TEST_P(HoldTest, WhoNeedsItsBlocksHasThemWhenItsTimeIsOver) {
  for (const SchedulerPolicy policy :
       {SchedulerPolicy::kMaxUtilization, SchedulerPolicy::kGuaranteedNoEvict,
        SchedulerPolicy::kStaticBatch}) {
    HarnessOptions options = Small();
    options.backend.info.kv_groups[0].num_blocks = 7;
    options.scheduler_policy = policy;
    LoopHarness harness(std::move(options));
    const Request request = Streaming(20);
    const Request other = Streaming(60);
    const auto held = std::make_shared<RecordingSink>();
    const auto free = std::make_shared<RecordingSink>();
    const RequestId id = harness.Enqueue(request, held);
    while (held->ids.size() < 14) ASSERT_TRUE(harness.Step());
    harness.inbox.Hold(id, true);
    harness.Enqueue(other, free);
    harness.RunUntilIdle();
    EXPECT_EQ(free->num_final, 0) << "it waits, and does not fail";
    harness.clock.AdvanceNs(kPlaceNs);
    harness.RunUntilIdle();
    ExpectWhole(harness, other, *free);
    EXPECT_FALSE(held->is_done());
    harness.inbox.Hold(id, false);
    harness.RunUntilIdle();
    ExpectWhole(harness, request, *held);
  }
}

TEST_P(HoldTest, ALoopComesToRestWithAHeldRequest) {
  for (const SleepMode mode : {SleepMode::kKeep, SleepMode::kWait}) {
    RestGate gate;
    HarnessOptions options = Small();
    options.rest = &gate;
    LoopHarness harness(std::move(options));
    const Request request = Streaming(20);
    const auto sink = std::make_shared<RecordingSink>();
    const RequestId id = harness.Enqueue(request, sink);
    while (sink->ids.size() < 4) ASSERT_TRUE(harness.Step());
    harness.inbox.Hold(id, true);
    harness.RunUntilIdle();
    gate.Ask(mode);
    harness.RunUntilIdle();
    harness.clock.AdvanceNs(kPlaceNs);
    harness.RunUntilIdle();
    ASSERT_TRUE(gate.Wait([] { return true; }));
    EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
    EXPECT_EQ(harness.loop.next_turn_ns(), kNever);
    gate.GoOn();
    harness.RunUntilIdle();
    EXPECT_FALSE(sink->is_done());
    harness.inbox.Hold(id, false);
    harness.RunUntilIdle();
    ExpectWhole(harness, request, *sink);
  }
}

TEST_P(HoldTest, BeamsAndSeveralSequencesAreHeldTogether) {
  for (const bool has_beams : {true, false}) {
    HarnessOptions options = Small();
    options.backend.info.max_beam_width = 2;
    LoopHarness harness(std::move(options));
    Request request = MakeRequest(7, 9, 20);
    request.streaming = true;
    if (has_beams) {
      request.sampling.beam_width = 2;
    } else {
      request.sampling.num_return_sequences = 2;
    }
    const auto sink = std::make_shared<RecordingSink>();
    const RequestId id = harness.Enqueue(request, sink);
    while (sink->responses.size() < 3) ASSERT_TRUE(harness.Step());
    harness.inbox.Hold(id, true);
    harness.RunUntilIdle();
    harness.clock.AdvanceNs(kPlaceNs);
    harness.RunUntilIdle();
    EXPECT_EQ(sink->num_final, 0);
    EXPECT_EQ(harness.loop.stats().num_paused_requests, has_beams ? 1 : 2);
    harness.inbox.Hold(id, false);
    harness.RunUntilIdle();
    EXPECT_EQ(harness.backend.violation(), "");
    EXPECT_EQ(sink->num_final, 1);
    if (has_beams) {
      const auto expected = ExpectedOutput(request, 97);
      ASSERT_EQ(sink->beams.size(), expected.beams.size());
      for (size_t i = 0; i < expected.beams.size(); ++i)
        EXPECT_EQ(sink->beams[i].output_ids, expected.beams[i].output_ids);
      continue;
    }
    for (int index = 0; index < 2; ++index) {
      Request alone = request;
      alone.sampling.num_return_sequences.reset();
      alone.sampling.seed = *request.sampling.seed + static_cast<uint64_t>(index);
      std::vector<TokenId> ids;
      for (const Response& response : sink->responses) {
        if (response.sequence_index == index)
          ids.insert(ids.end(), response.output_ids.begin(), response.output_ids.end());
      }
      EXPECT_EQ(ids, ExpectedOutput(alone, 97).ids);
    }
  }
}

// Gauges are made of the newest record of an iteration.
TEST_P(HoldTest, RecordsOfIterationsSayThatTheLoopStandsStillAndWhoGaveUpItsBlocks) {
  LoopHarness harness(Small());
  const auto sink = std::make_shared<RecordingSink>();
  const RequestId id = harness.Enqueue(Streaming(20), sink);
  while (sink->ids.size() < 4) ASSERT_TRUE(harness.Step());
  harness.inbox.Hold(id, true);
  harness.RunUntilIdle();
  std::vector<ExecutorStats> records;
  harness.loop.TakeIterationStats(&records);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().num_scheduled_requests, 0);
  EXPECT_EQ(records.back().num_active_requests, 1);
  EXPECT_GT(records.back().kv_blocks_used, 0);
  harness.clock.AdvanceNs(kPlaceNs);
  harness.RunUntilIdle();
  records.clear();
  harness.loop.TakeIterationStats(&records);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].num_paused_requests, 1);
  EXPECT_EQ(records[0].kv_blocks_used, 0);
}

// Clients that read in fits and starts, under each policy with few blocks.
TEST_P(HoldTest, RandomHoldsLoseNothingAndRepeatNothing) {
  for (const SchedulerPolicy policy :
       {SchedulerPolicy::kMaxUtilization, SchedulerPolicy::kGuaranteedNoEvict,
        SchedulerPolicy::kStaticBatch}) {
    HarnessOptions options = Small();
    options.backend.ready_seed = 3;
    options.scheduler_policy = policy;
    LoopHarness harness(std::move(options));
    std::mt19937 random(11);
    const auto below = [&random](unsigned n) { return random() % n; };
    struct Asked {
      RequestId id;
      Request request;
      std::shared_ptr<RecordingSink> sink;
      bool is_cancelled = false;
    };
    std::vector<Asked> asked;
    for (int turn = 0; turn < 3000; ++turn) {
      if (below(8) == 0) {
        Request request = MakeRequest(static_cast<int>(1 + below(12)),
                                      static_cast<int>(1 + below(24)), 1 + below(80));
        request.streaming = true;
        const auto sink = std::make_shared<RecordingSink>();
        if (const RequestId id = harness.Enqueue(request, sink); id != 0)
          asked.push_back({id, request, sink});
      }
      if (!asked.empty() && below(2) == 0) {
        Asked& one = asked[asked.size() - 1 -
                           below(static_cast<unsigned>(std::min<size_t>(asked.size(), 8)))];
        if (below(16) == 0) {
          harness.inbox.Cancel(one.id);
          one.is_cancelled = true;
        } else {
          harness.inbox.Hold(one.id, below(2) == 0);
        }
      }
      if (below(16) == 0) harness.clock.AdvanceNs(kPlaceNs / 2);
      harness.Step();
      ASSERT_EQ(harness.backend.violation(), "");
    }
    for (const Asked& one : asked) harness.inbox.Hold(one.id, false);
    harness.RunUntilIdle();
    EXPECT_GT(asked.size(), 100U);
    for (const Asked& one : asked) {
      if (!one.is_cancelled) {
        ExpectWhole(harness, one.request, *one.sink);
        continue;
      }
      const auto expected = ExpectedOutput(one.request, 97);
      EXPECT_EQ(one.sink->num_final, 1);
      ASSERT_LE(one.sink->ids.size(), expected.ids.size());
      EXPECT_TRUE(std::equal(one.sink->ids.begin(), one.sink->ids.end(), expected.ids.begin()));
    }
    EXPECT_GT(harness.loop.stats().num_pauses, 10);
    EXPECT_EQ(harness.loop.stats().kv_blocks_used, 0);
    EXPECT_EQ(harness.loop.stats().num_paused_requests, 0);
    EXPECT_EQ(harness.loop.stats().num_queued_requests, 0);
  }
}

}  // namespace
}  // namespace inflight::executor

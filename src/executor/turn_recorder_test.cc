// SPDX-License-Identifier: Apache-2.0
// The recorder itself, and what a step loop notes in it.
#include "executor/turn_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "decoding/list_guide.h"
#include "simulation/loop_harness.h"

namespace inflight::executor {
namespace {

using ::inflight::testing::HarnessOptions;
using ::inflight::testing::LoopHarness;
using ::inflight::testing::MakeRequest;
using ::inflight::testing::RecordingSink;
using ::inflight::testing::SmallInfo;
using ::testing::ElementsAre;

// A turn of one phase that ends when it begins.
void TakeTurn(TurnRecorder& recorder, int64_t now_ns) {
  recorder.BeginTurn(now_ns);
  recorder.Mark(TurnPhase::kAdmit, now_ns);
  recorder.Keep();
}

std::vector<int64_t> BeginsOf(const StepProfile& profile) {
  std::vector<int64_t> begins;
  for (const TurnProfile& turn : profile.turns) begins.push_back(turn.begin_ns);
  return begins;
}

TEST(TurnRecorder, NothingIsKeptOfTurnsThatNobodyAskedFor) {
  const ManualClock clock;
  TurnRecorder recorder(clock, true);
  TakeTurn(recorder, 1);
  EXPECT_FALSE(recorder.is_on());
  EXPECT_TRUE(recorder.End().turns.empty());
  ASSERT_TRUE(recorder.Begin(2, 8));
  EXPECT_TRUE(recorder.End().turns.empty());
  TakeTurn(recorder, 3);
  EXPECT_TRUE(recorder.End().turns.empty());
}

TEST(TurnRecorder, TheFirstTurnsAreKeptAndTheOthersCounted) {
  const ManualClock clock;
  TurnRecorder recorder(clock, true);
  ASSERT_TRUE(recorder.Begin(10, 2));
  EXPECT_FALSE(recorder.Begin(10, 2)) << "one at a time";
  for (const int64_t now_ns : {9, 10, 11, 12, 13}) TakeTurn(recorder, now_ns);
  const StepProfile profile = recorder.End();
  EXPECT_THAT(BeginsOf(profile), ElementsAre(10, 11));
  EXPECT_EQ(profile.num_lost_turns, 2);
  EXPECT_TRUE(profile.computes_in_launch);
  ASSERT_TRUE(recorder.Begin(20, 2));
  TakeTurn(recorder, 20);
  EXPECT_EQ(recorder.End().num_lost_turns, 0);
}

TEST(TurnRecorder, ATurnBelongsToTheProfileUnderWhichItBeganAndEnded) {
  const ManualClock clock;
  TurnRecorder recorder(clock, true);
  recorder.BeginTurn(1);  // unseen
  ASSERT_TRUE(recorder.Begin(2, 8));
  recorder.BeginTurn(3);  // seen, and not over when its profile ends
  EXPECT_TRUE(recorder.End().turns.empty());
  ASSERT_TRUE(recorder.Begin(4, 8));
  recorder.Keep();
  EXPECT_TRUE(recorder.End().turns.empty());
}

TEST(TurnRecorder, ItHasRoomForMorePhasesThanATurnHas) {
  const ManualClock clock;
  TurnRecorder recorder(clock, true);
  ASSERT_TRUE(recorder.Begin(1, 1));
  recorder.BeginTurn(1);
  for (int i = 0; i < 2 * TurnProfile::kMaxPhases; ++i) recorder.Mark(TurnPhase::kMasks, i);
  recorder.Keep();
  const StepProfile profile = recorder.End();
  EXPECT_EQ(profile.turns[0].num_phases, TurnProfile::kMaxPhases);
  EXPECT_EQ(profile.turns[0].end_ns(), TurnProfile::kMaxPhases - 1);
}

TEST(TurnRecorder, WhoAsksBesideTheLoopGetsWholeTurns) {
  const ManualClock clock;
  TurnRecorder recorder(clock, false);
  std::atomic<bool> is_over{false};
  std::thread loop([&] {
    for (int64_t now_ns = 1; !is_over.load(); ++now_ns) {
      recorder.BeginTurn(now_ns);
      if (!recorder.is_on()) continue;
      recorder.turn().num_tokens_generated = -now_ns;
      recorder.Mark(TurnPhase::kAdmit, now_ns);
      recorder.Keep();
    }
  });
  size_t num_turns = 0;
  int64_t last_ns = 0;
  while (num_turns < 5000) {
    ASSERT_TRUE(recorder.Begin(last_ns, 64));
    std::this_thread::yield();
    for (const TurnProfile& turn : recorder.End().turns) {
      EXPECT_GT(turn.begin_ns, last_ns);
      EXPECT_EQ(turn.num_tokens_generated, -turn.begin_ns);
      EXPECT_EQ(turn.end_ns(), turn.begin_ns);
      last_ns = turn.begin_ns;
      ++num_turns;
    }
  }
  is_over = true;
  loop.join();
}

class ProfiledLoopTest : public ::testing::TestWithParam<int> {
 protected:
  HarnessOptions Options() const {
    HarnessOptions options;
    options.backend.info = SmallInfo(GetParam());
    return options;
  }
  int depth() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Depths, ProfiledLoopTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "Depth" + std::to_string(info.param); });

TEST_P(ProfiledLoopTest, PhasesFollowEachOtherAndTokensAddUp) {
  LoopHarness harness(Options());
  auto before = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(/*prompt_len=*/3, /*max_tokens=*/2, /*seed=*/7), before);
  harness.RunUntilIdle();
  const int64_t begin_ns = harness.clock.NowNs();
  const auto profiler = harness.loop.step_profiler();
  ASSERT_TRUE(profiler->Begin(begin_ns, 64));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const uint64_t seed : {20U, 40U}) {
    sinks.push_back(std::make_shared<RecordingSink>());
    harness.Enqueue(MakeRequest(/*prompt_len=*/5, /*max_tokens=*/4, seed), sinks.back());
  }
  harness.RunUntilIdle();
  const StepProfile profile = profiler->End();
  EXPECT_EQ(profile.computes_in_launch, depth() == 1);
  EXPECT_EQ(profile.num_lost_turns, 0);
  int64_t last_ns = begin_ns, launched = 0, collected = 0, step = 0;
  size_t tokens = 0;
  for (const TurnProfile& turn : profile.turns) {
    EXPECT_GE(turn.begin_ns, last_ns);
    last_ns = turn.begin_ns;
    for (size_t i = 0; i < static_cast<size_t>(turn.num_phases); ++i) {
      EXPECT_GE(turn.ends_ns[i], last_ns);
      last_ns = turn.ends_ns[i];
    }
    EXPECT_EQ(turn.phases[0], TurnPhase::kAdmit);
    EXPECT_EQ(turn.phases[static_cast<size_t>(turn.num_phases - 1)], TurnPhase::kDeliver);
    launched += turn.launched.num_prompt_tokens;
    collected += turn.collected.num_prompt_tokens;
    tokens += static_cast<size_t>(turn.num_tokens_generated);
    if (turn.collected.number == 0) continue;
    if (step > 0) {
      EXPECT_EQ(turn.collected.number, step + 1);
    }
    step = turn.collected.number;
  }
  EXPECT_LE(last_ns, harness.clock.NowNs());
  EXPECT_EQ(launched, 10);
  EXPECT_EQ(collected, 10);
  EXPECT_EQ(tokens, sinks[0]->ids.size() + sinks[1]->ids.size());
  EXPECT_EQ(tokens, 8U);
  EXPECT_GT(profile.turns.front().kv_blocks_used, 0);
  EXPECT_EQ(profile.turns.back().kv_blocks_used, 0);
  EXPECT_EQ(profile.turns.back().num_active_requests, 0);
}

TEST_P(ProfiledLoopTest, TimeOfTheDeviceIsThatOfItsPhase) {
  HarnessOptions options = Options();
  options.backend.step_ns = 1000;
  LoopHarness harness(std::move(options));
  const auto profiler = harness.loop.step_profiler();
  ASSERT_TRUE(profiler->Begin(0, 64));
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(MakeRequest(5, 4), sink);
  harness.RunUntilIdle();
  int64_t on_device_ns = 0, elsewhere_ns = 0;
  for (const TurnProfile& turn : profiler->End().turns) {
    int64_t begin_ns = turn.begin_ns;
    for (size_t i = 0; i < static_cast<size_t>(turn.num_phases); ++i) {
      const bool is_on_device =
          turn.phases[i] == TurnPhase::kLaunch || turn.phases[i] == TurnPhase::kWait;
      (is_on_device ? on_device_ns : elsewhere_ns) += turn.ends_ns[i] - begin_ns;
      begin_ns = turn.ends_ns[i];
    }
  }
  EXPECT_EQ(elsewhere_ns, 0) << "the clock of the test stands still there";
  EXPECT_GE(on_device_ns, 4 * 1000);
}

TEST_P(ProfiledLoopTest, MasksOfGuidesAreAPhaseOfTheirOwn) {
  HarnessOptions options = Options();
  options.backend.info.wants_guide_masks = true;
  LoopHarness harness(std::move(options));
  const auto profiler = harness.loop.step_profiler();
  ASSERT_TRUE(profiler->Begin(0, 64));
  Request request = MakeRequest(3, 8);
  request.guide = decoding::MakeListGuide(97, {{5, 6, 7}});
  auto sink = std::make_shared<RecordingSink>();
  harness.Enqueue(std::move(request), sink);
  harness.RunUntilIdle();
  int num_masks = 0;
  for (const TurnProfile& turn : profiler->End().turns) {
    EXPECT_LE(turn.num_phases, TurnProfile::kMaxPhases);
    for (size_t i = 0; i < static_cast<size_t>(turn.num_phases); ++i)
      num_masks += turn.phases[i] == TurnPhase::kMasks ? 1 : 0;
  }
  EXPECT_GE(num_masks, 3);
}

}  // namespace
}  // namespace inflight::executor

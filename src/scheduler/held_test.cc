// SPDX-License-Identifier: Apache-2.0
// Sequences whose clients do not read.
#include <gmock/gmock.h>

#include "scheduler/scheduler_fixture.h"

namespace inflight::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using HeldTest = SchedulerTest;

constexpr SchedulerOptions kFew{.max_batch_size = 4, .max_num_tokens = 64, .max_slots = 4};

TEST_F(HeldTest, GetsNoRowsAndKeepsItsBlocks) {
  Make(kFew);
  SequenceState* a = Add(8, 8);
  SequenceState* b = Add(8, 8);
  Plan();
  scheduler_->Hold(a);
  Plan();
  EXPECT_THAT(step_.rows, ElementsAre(b));
  const int64_t num_blocks = cache_->stats().blocks_used;
  EXPECT_FALSE(scheduler_->runs_only_held());
  scheduler_->Hold(b);
  Plan();
  EXPECT_THAT(step_.rows, IsEmpty());
  EXPECT_TRUE(scheduler_->runs_only_held());
  EXPECT_EQ(scheduler_->num_running(), 2);
  EXPECT_EQ(scheduler_->num_paused(), 0);
  EXPECT_EQ(cache_->stats().blocks_used, num_blocks);
  scheduler_->GoOn(a);
  Plan();
  EXPECT_THAT(step_.rows, ElementsAre(a));
  EXPECT_EQ(row(0).first_position, 8) << "goes on where it was";
}

TEST_F(HeldTest, APromptGoesOnToItsFirstToken) {
  Make({.max_batch_size = 4, .max_num_tokens = 8, .max_slots = 4});
  SequenceState* a = Add(12, 8);
  Plan();
  scheduler_->Hold(a);
  Plan();
  EXPECT_THAT(step_.rows, ElementsAre(a));
  EXPECT_EQ(step_.plan.num_yields, 1);
  Plan();
  EXPECT_THAT(step_.rows, IsEmpty());
}

TEST_F(HeldTest, PutAsideGivesItsBlocksToOthersUntilItGoesOn) {
  Make(kFew, /*num_blocks=*/4);
  SequenceState* a = Add(7, 9);  // all four blocks
  SequenceState* b = Add(7, 9);
  Plan();
  ASSERT_THAT(step_.admitted, ElementsAre(a));
  scheduler_->PutAside(a);
  EXPECT_EQ(a->phase, Phase::kDecode) << "it is not held";
  scheduler_->Hold(a);
  Plan();
  EXPECT_THAT(step_.rows, IsEmpty()) << "there is no room for b";
  scheduler_->PutAside(a);
  EXPECT_EQ(a->phase, Phase::kAside);
  EXPECT_TRUE(IsPaused(*a));
  EXPECT_EQ(scheduler_->num_paused(), 1);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(b)) << "who stands aside keeps nobody waiting";
  scheduler_->GoOn(a);
  EXPECT_EQ(a->phase, Phase::kWaiting);
  Plan();
  EXPECT_THAT(step_.rows, ElementsAre(b));
  End(b);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(a));
  EXPECT_EQ(scheduler_->num_paused(), 0);
  End(a);
  EXPECT_EQ(cache_->stats().blocks_used, 0);
}

TEST_F(HeldTest, WhoWaitsLeavesTheLineAndReturnsToItsPlace) {
  Make({.max_batch_size = 1, .max_num_tokens = 64, .max_slots = 1});
  SequenceState* a = Add(8, 8);
  SequenceState* b = Add(8, 8);
  SequenceState* c = Add(8, 8);
  SequenceState* d = Add(8, 8);
  Plan();
  scheduler_->Hold(b);
  EXPECT_EQ(scheduler_->num_waiting(), 2);
  EXPECT_FALSE(IsPaused(*b)) << "it never ran";
  End(a);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(c));
  scheduler_->GoOn(b);
  End(c);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(b)) << "before d, which came later";
  scheduler_->Hold(d);
  scheduler_->Remove(d);
  scheduler_->GoOn(d);
  EXPECT_EQ(d->phase, Phase::kRemoved);
  EXPECT_EQ(scheduler_->num_waiting(), 0);
}

TEST_F(HeldTest, OneThatIsPutAsideWithRowsInFlightGivesItsBlocksBackWhenTheyAreCollected) {
  for (const bool goes_on : {false, true}) {
    Make(kFew);
    SequenceState* a = Add(8, 8);
    Launch();
    Launch();
    scheduler_->Hold(a);
    scheduler_->PutAside(a);
    EXPECT_EQ(a->phase, Phase::kPausing);
    Collect();
    scheduler_->ParkPaused();
    EXPECT_EQ(a->phase, Phase::kPausing);
    EXPECT_GT(cache_->stats().blocks_used, 0);
    if (goes_on) scheduler_->GoOn(a);
    Collect();
    scheduler_->ParkPaused();
    EXPECT_EQ(a->phase, goes_on ? Phase::kWaiting : Phase::kAside);
    EXPECT_EQ(cache_->stats().blocks_used, 0);
    scheduler_->Remove(a);
    scheduler_->Release(a, 0);
    EXPECT_EQ(scheduler_->num_paused(), 0);
    EXPECT_EQ(scheduler_->num_waiting(), 0);
  }
}

TEST_F(HeldTest, OneThatOthersNeedTheBlocksOfStandsAsideAtOnce) {
  Make({.max_batch_size = 4,
        .max_num_tokens = 64,
        .max_slots = 4,
        .policy = SchedulerPolicy::kMaxUtilization},
       /*num_blocks=*/4);
  SequenceState* a = Add(7, 9);
  SequenceState* b = Add(7, 9);
  Plan();
  ASSERT_THAT(step_.admitted, ElementsAre(a, b));
  scheduler_->Hold(b);
  for (int step = 0; step < 6 && b->phase != Phase::kAside; ++step) Plan();
  EXPECT_EQ(b->phase, Phase::kAside);
  EXPECT_EQ(a->phase, Phase::kDecode);
}

}  // namespace
}  // namespace inflight::scheduler

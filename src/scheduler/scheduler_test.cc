// SPDX-License-Identifier: Apache-2.0
#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_fixture.h"

namespace inflight::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(SchedulerTest, PromptIsComputedThenEachStepDecodesOneToken) {
  Make({.max_batch_size = 4, .max_num_tokens = 32, .max_slots = 4});
  SequenceState* a = Add(5, 3);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(a));
  EXPECT_THAT(QueryTokens(), ElementsAre(5));
  EXPECT_EQ(row(0).is_prefill, 1);
  EXPECT_EQ(row(0).yields, 1);
  EXPECT_EQ(row(0).first_position, 0);
  EXPECT_EQ(step_.plan.num_updates, 1);
  EXPECT_EQ(step_.plan.updates[0].num_blocks, 2);
  Plan();
  EXPECT_THAT(step_.admitted, IsEmpty());
  EXPECT_EQ(row(0).is_prefill, 0);
  EXPECT_EQ(row(0).first_position, 5);
  EXPECT_EQ(step_.plan.num_updates, 0) << "position 5 is in the second block";
  EXPECT_EQ(Plan().num_rows, 1);
  EXPECT_EQ(row(0).first_position, 6);
  EXPECT_EQ(Plan().num_rows, 0)
      << "all 3 tokens are planned; a length known in advance wastes none";
}

TEST_F(SchedulerTest, BlocksAreSentWhenTheFirstTokenNeedsThem) {
  Make({.max_batch_size = 4, .max_num_tokens = 32, .max_slots = 4});
  Add(4, 6);
  Plan();
  EXPECT_EQ(step_.plan.updates[0].num_blocks, 1);
  Plan();  // position 4 begins the second block
  ASSERT_EQ(step_.plan.num_updates, 1);
  EXPECT_EQ(step_.plan.updates[0].first_idx, 1);
  EXPECT_EQ(step_.plan.updates[0].num_blocks, 1);
}

TEST_F(SchedulerTest, DecodeRowsComeFirstAndLeaveTheRestToPrefill) {
  Make({.max_batch_size = 4, .max_num_tokens = 10, .max_slots = 4});
  Add(3, 9);
  Add(3, 9);
  Plan();
  Add(20, 4);
  Plan();
  EXPECT_EQ(step_.plan.num_decode_rows, 2);
  EXPECT_THAT(QueryTokens(), ElementsAre(1, 1, 8));
  EXPECT_EQ(step_.plan.num_yields, 2) << "the chunk does not complete its prompt";
  EXPECT_EQ(row(2).yields, 0);
}

TEST_F(SchedulerTest, RowsOfAStepShareTheDraftsThatItMayHave) {
  Make({.max_batch_size = 4,
        .max_num_tokens = 64,
        .max_slots = 4,
        .max_tokens_per_row = 4,
        .max_drafts = 5});
  for (int i = 0; i < 3; ++i) Add(4, 20);
  Plan();
  SequenceState* const with_drafts = Add(4, 7);  // which the client sent
  with_drafts->num_prompt_drafts = 6;
  const StepPlan& plan = Plan();
  ASSERT_EQ(plan.num_rows, 4);
  EXPECT_EQ(row(0).num_draft_tokens, 3);
  EXPECT_EQ(row(1).num_draft_tokens, 2);
  EXPECT_EQ(row(2).num_draft_tokens, 0);
  EXPECT_EQ(row(3).num_draft_tokens, 0);
  EXPECT_EQ(row(3).num_query_tokens, 4);
  EXPECT_EQ(plan.num_tokens, 4 + 3 + 1 + 4);
}

TEST_F(SchedulerTest, ChunksEndOnBlockBoundariesUntilTheLast) {
  Make({.max_batch_size = 4, .max_num_tokens = 11, .max_slots = 4});
  Add(21, 4);
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(8));
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(8));
  EXPECT_EQ(row(0).first_position, 8);
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(5));
  EXPECT_EQ(row(0).yields, 1);
}

TEST_F(SchedulerTest, StepGoalBoundsPrefillButNotBelowABlock) {
  Make({.max_batch_size = 4, .max_num_tokens = 64, .max_slots = 4});
  Add(30, 4);
  Plan({.beside_decode = 64, .alone = 9});
  EXPECT_THAT(QueryTokens(), ElementsAre(8));
  Plan({.beside_decode = 64, .alone = 1});
  EXPECT_THAT(QueryTokens(), ElementsAre(4));
}

TEST_F(SchedulerTest, StepWithLessThanABlockLeftStillMakesProgress) {
  Make({.max_batch_size = 4, .max_num_tokens = 4, .max_slots = 4});
  Add(4, 9);
  Plan();
  Add(10, 2);
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(1, 3));
}

TEST_F(SchedulerTest, WithoutChunkingAPromptWaitsForAStepThatHoldsItWhole) {
  Make(
      {.max_batch_size = 4, .max_num_tokens = 16, .max_slots = 4, .enable_chunked_prefill = false});
  Add(10, 2);
  Add(10, 4);
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(10));
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(1, 10));
}

TEST_F(SchedulerTest, NobodyOvertakesTheFirstThatDoesNotFit) {
  Make({.max_batch_size = 4, .max_num_tokens = 64, .max_slots = 4}, /*num_blocks=*/8);
  SequenceState* a = Add(8, 9);     // 4 blocks at full length
  SequenceState* big = Add(8, 13);  // 5 blocks
  SequenceState* small = Add(2, 2);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(a));
  Plan();
  EXPECT_THAT(step_.admitted, IsEmpty());
  End(a);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(big, small));
}

TEST_F(SchedulerTest, HigherPriorityGoesFirstTiesByArrival) {
  Make({.max_batch_size = 1, .max_num_tokens = 64, .max_slots = 1});
  SequenceState* low = Add(4, 1, 0.2F);
  SequenceState* first = Add(4, 1);
  SequenceState* second = Add(4, 1);
  SequenceState* high = Add(4, 1, 0.9F);
  for (SequenceState* expected : {high, first, second, low}) {
    Plan();
    ASSERT_THAT(step_.admitted, ElementsAre(expected));
    End(expected);
  }
}

TEST_F(SchedulerTest, RemovedSequenceLeavesTheNextPlanButKeepsSlotAndBlocksUntilRelease) {
  Make({.max_batch_size = 2, .max_num_tokens = 64, .max_slots = 2}, /*num_blocks=*/4);
  SequenceState* a = Add(8, 4);
  Plan();
  SequenceState* b = Add(8, 8);  // 4 blocks: needs all
  scheduler_->Remove(a);
  EXPECT_EQ(Plan().num_rows, 0);
  EXPECT_EQ(cache_->stats().blocks_used, 2);
  scheduler_->Release(a, 8);
  EXPECT_EQ(cache_->stats().blocks_used, 0);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(b));
}

TEST_F(SchedulerTest, RemovedWhileWaitingIsNeverAdmitted) {
  Make({.max_batch_size = 1, .max_num_tokens = 64, .max_slots = 1});
  SequenceState* a = Add(4, 1);
  SequenceState* b = Add(4, 1);
  scheduler_->Remove(a);
  scheduler_->Release(a, 0);
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(b));
}

TEST_F(SchedulerTest, ReusedPrefixIsNotComputedAgain) {
  Make({.max_batch_size = 2, .max_num_tokens = 64, .max_slots = 2});
  SequenceState* a = Add(11, 2);
  Plan();
  Plan();
  End(a);
  SequenceState* b = AddTokens(2);
  Plan();
  EXPECT_EQ(b->num_cached_tokens, 8);
  EXPECT_THAT(QueryTokens(), ElementsAre(3));
  EXPECT_EQ(row(0).first_position, 8);
  EXPECT_EQ(step_.plan.updates[0].num_blocks, 3) << "the reused blocks are named too";
}

TEST_F(SchedulerTest, PromptWaitsWhileItsPrefixIsBeingComputed) {
  Make({.max_batch_size = 4, .max_num_tokens = 64, .max_slots = 4});
  SequenceState* a = Add(11, 2);
  SequenceState* twin = AddTokens(2);
  scheduler_->Plan(kNoGoal, &step_);  // in flight
  EXPECT_THAT(step_.admitted, ElementsAre(a));
  scheduler_->Publish(a, 11);  // collected
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(twin));
  EXPECT_EQ(twin->num_cached_tokens, 8);
}

TEST_F(SchedulerTest, WhoeverReusesNothingComputesAllAndWaitsForNoTwin) {
  Make({.max_batch_size = 4, .max_num_tokens = 64, .max_slots = 4});
  SequenceState* a = Add(11, 2);
  SequenceState* twin = AddTokens(2);
  twin->reuses_blocks = false;
  scheduler_->Plan(kNoGoal, &step_);
  EXPECT_THAT(step_.admitted, ElementsAre(a, twin));
  EXPECT_EQ(twin->num_cached_tokens, 0);
  EXPECT_THAT(QueryTokens(), ElementsAre(11, 11));
}

TEST_F(SchedulerTest, PlanStaysWithinItsArrays) {
  constexpr int kBatch = 1000;
  Make({.max_batch_size = kBatch, .max_num_tokens = 16384, .max_slots = kBatch},
       /*num_blocks=*/200'000, /*block_size=*/1);
  for (int i = 0; i < kBatch; ++i) Add(40, 50);
  int num_tokens = 0;
  for (int i = 0; i < 100 && num_tokens < kBatch * 40; ++i) {
    Plan();
    ASSERT_LE(step_.plan.num_block_ids, StepPlan::kMaxBlockIds);
    ASSERT_LE(step_.plan.num_updates, StepPlan::kMaxUpdates);
    num_tokens += step_.plan.num_tokens - step_.plan.num_decode_rows;
  }
  EXPECT_EQ(num_tokens, kBatch * 40);
}

TEST_F(SchedulerTest, DroppedRowTakesItsBlocksAlong) {
  Make({.max_batch_size = 4, .max_num_tokens = 64, .max_slots = 4});
  SequenceState* a = Add(3, 2);
  Add(5, 2);
  scheduler_->Plan(kNoGoal, &step_);
  scheduler_->Remove(a);
  Scheduler::DropRow(0, &step_);
  EXPECT_THAT(QueryTokens(), ElementsAre(5));
  EXPECT_EQ(step_.plan.num_tokens, 5);
  EXPECT_EQ(step_.plan.num_yields, 1);
  ASSERT_EQ(step_.plan.num_updates, 1);
  EXPECT_EQ(step_.plan.updates[0].slot, row(0).slot);
}

}  // namespace
}  // namespace inflight::scheduler

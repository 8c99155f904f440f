// SPDX-License-Identifier: Apache-2.0
// Which sequences run under each policy, and which are paused for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_fixture.h"

namespace inflight::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// ---- MAX_UTILIZATION ----

constexpr SchedulerOptions kUtilize{.max_batch_size = 4,
                                    .max_num_tokens = 64,
                                    .max_slots = 6,
                                    .policy = SchedulerPolicy::kMaxUtilization};

TEST_F(SchedulerTest, MaxUtilizationAdmitsByTheNextStepNotByFullLength) {
  Make(kUtilize, /*num_blocks=*/6);
  SequenceState* a = Add(7, 17);  // 6 blocks at full length, 2 for the prompt and the next token
  SequenceState* b = Add(7, 17);
  SequenceState* c = Add(7, 17);
  Add(7, 17);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(a, b, c));
}

TEST_F(SchedulerTest, StepThatLacksABlockPausesTheLastInOrder) {
  Make(kUtilize, /*num_blocks=*/4);
  SequenceState* low = Add(7, 9, 0.25F);
  SequenceState* high = Add(7, 9, 0.75F);
  Plan();
  ASSERT_THAT(step_.admitted, ElementsAre(high, low));
  Grow(high, &tokens_[1]);
  Grow(low, &tokens_[0]);
  Plan();  // position 7 still fits
  EXPECT_THAT(step_.rows, ElementsAre(high, low));
  Grow(high, &tokens_[1]);
  Grow(low, &tokens_[0]);
  Plan();  // position 8 begins a third block, and all four are taken
  EXPECT_THAT(step_.rows, ElementsAre(high));
  EXPECT_EQ(low->phase, Phase::kWaiting);
  EXPECT_EQ(low->num_pauses, 1);
  EXPECT_EQ(low->slot, -1);
  EXPECT_EQ(scheduler_->num_paused(), 1);
  EXPECT_EQ(scheduler_->num_pauses(), 1);
  EXPECT_EQ(cache_->stats().blocks_used, 3);
  End(high);
  Plan();  // resumes with the 9 tokens it knows; those of its first block are still there
  EXPECT_THAT(step_.admitted, ElementsAre(low));
  EXPECT_THAT(QueryTokens(), ElementsAre(5));
  EXPECT_EQ(row(0).first_position, 4);
  EXPECT_EQ(row(0).yields, 1);
  EXPECT_EQ(scheduler_->num_paused(), 0);
}

TEST_F(SchedulerTest, PausedSequenceKeepsSlotAndBlocksWhileARowIsInFlight) {
  Make(kUtilize, /*num_blocks=*/4);
  SequenceState* a = Add(7, 9);
  SequenceState* b = Add(7, 9);
  Launch();
  Launch();
  Collect();
  Launch();  // both lack a block; b's come back after the step in flight
  EXPECT_THAT(step_.rows, IsEmpty());
  EXPECT_EQ(b->phase, Phase::kPausing);
  EXPECT_EQ(cache_->stats().blocks_used, 4);
  Collect();
  Collect();
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(a));
  EXPECT_EQ(b->phase, Phase::kWaiting);
  EXPECT_EQ(cache_->stats().blocks_used, 3);
}

TEST_F(SchedulerTest, NobodyIsAdmittedPastOneThatIsPausing) {
  Make(kUtilize, /*num_blocks=*/5);
  SequenceState* a = Add(7, 9);
  SequenceState* b = Add(7, 9);
  Launch();
  Launch();
  SequenceState* small = Add(1, 2);
  Launch();  // a takes the last block, b lacks one and is paused itself
  EXPECT_THAT(step_.rows, ElementsAre(a));
  EXPECT_EQ(b->phase, Phase::kPausing);
  Collect();
  Launch();
  EXPECT_THAT(step_.admitted, IsEmpty());
  EXPECT_EQ(small->phase, Phase::kWaiting);
}

TEST_F(SchedulerTest, SequenceRemovedWhilePausingGivesItsBlocksBackOnce) {
  Make(kUtilize, /*num_blocks=*/4);
  SequenceState* a = Add(7, 9);
  SequenceState* b = Add(7, 9);
  Launch();
  Launch();
  Launch();
  ASSERT_EQ(b->phase, Phase::kPausing);
  scheduler_->Remove(b);
  EXPECT_EQ(scheduler_->num_paused(), 0);
  while (!in_flight_.empty()) Collect();
  scheduler_->Release(b, 0);
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(a));
  Collect();
  End(a);
  EXPECT_EQ(cache_->stats().blocks_used, 0);
  EXPECT_EQ(scheduler_->num_waiting(), 0);
}

TEST_F(SchedulerTest, ResumedSequenceIsCutIntoChunksEvenWithoutChunking) {
  SchedulerOptions options = kUtilize;
  options.enable_chunked_prefill = false;
  options.max_num_tokens = 8;
  Make(options, /*num_blocks=*/16);
  SequenceState* a = Add(7, 20);
  a->num_pauses = 1;  // as if it had generated 6 tokens before
  for (int i = 0; i < 6; ++i) tokens_[0].push_back(i);
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(8));
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(5));
}

// ---- STATIC_BATCH ----

TEST_F(SchedulerTest, StaticBatchIsAdmittedTogetherAndNobodyJoinsUntilAllHaveEnded) {
  Make({.max_batch_size = 2,
        .max_num_tokens = 8,
        .max_slots = 3,
        .policy = SchedulerPolicy::kStaticBatch});
  SequenceState* a = Add(8, 4);
  SequenceState* b = Add(8, 4);
  SequenceState* c = Add(8, 4);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(a, b)) << "also those whose prompt has to wait";
  EXPECT_THAT(step_.rows, ElementsAre(a));
  Plan();
  EXPECT_THAT(step_.rows, ElementsAre(a, b));
  End(a);
  Plan();
  EXPECT_THAT(step_.admitted, IsEmpty());
  scheduler_->Remove(b);
  Plan();
  EXPECT_THAT(step_.admitted, IsEmpty()) << "a step in flight still holds b";
  scheduler_->Release(b, 0);
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(c));
}

// ---- EQUAL_PROGRESS ----

TEST_F(SchedulerTest, EqualProgressGivesABlockToEachRoundAfterRound) {
  Make({.max_batch_size = 4,
        .max_num_tokens = 24,
        .max_slots = 4,
        .chunking = ChunkingPolicy::kEqualProgress});
  Add(30, 4);
  Add(6, 4);
  Add(30, 4);
  Plan();
  // Rounds of blocks of 4: (4, 4, 4), (4, 2, 4), and 2 tokens are left, less than a block.
  EXPECT_THAT(QueryTokens(), ElementsAre(8, 6, 8));
  EXPECT_EQ(step_.plan.num_yields, 1);
  Plan();  // 23 beside the decode row: (4, -, 4), (4, -, 4), (4, -, -), 3 left
  EXPECT_THAT(QueryTokens(), ElementsAre(1, 12, 8));
}

TEST_F(SchedulerTest, FirstComeFirstServedGivesTheFirstAllItCanTake) {
  Make({.max_batch_size = 4, .max_num_tokens = 24, .max_slots = 4});
  Add(30, 4);
  Add(6, 4);
  Add(30, 4);
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(24));
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(6, 6, 12));
}

// Answers begin one after another: the n-th in line has its first token after n prompts, not after
// all of them, and its row decodes beside the prompts that are left.
TEST_F(SchedulerTest, ManyPromptsEndInTurnBesideTheRowsThatDecode) {
  Make({.max_batch_size = 8, .max_num_tokens = 64, .max_slots = 8});
  constexpr PrefillShare kTwoBlocks{.beside_decode = 8, .alone = 8};
  for (int i = 0; i < 8; ++i) Add(/*prompt_len=*/16, /*max_tokens=*/16);
  for (int step = 0; step < 16; ++step) {
    const StepPlan& plan = Plan(kTwoBlocks);
    const int num_ended = step / 2;
    EXPECT_EQ(plan.num_decode_rows, num_ended) << step;
    EXPECT_EQ(plan.num_rows, num_ended + 1) << step;
    EXPECT_EQ(row(num_ended).num_query_tokens, 8) << step;
    EXPECT_EQ(row(num_ended).yields, step % 2) << step;
    EXPECT_EQ(step_.rows[static_cast<size_t>(num_ended)], &sequences_[step / 2]) << step;
  }
}

TEST_F(SchedulerTest, NobodyNewStartsWhileTheQueueIsHeldBack) {
  Make({.max_batch_size = 4, .max_num_tokens = 24, .max_slots = 4});
  SequenceState* a = Add(4, 4);
  scheduler_->Plan(kNoGoal, &step_, /*may_start=*/false);
  EXPECT_THAT(step_.admitted, IsEmpty());
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(a));
}

}  // namespace
}  // namespace inflight::scheduler

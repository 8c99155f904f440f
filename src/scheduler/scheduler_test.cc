// SPDX-License-Identifier: Apache-2.0
#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>

#include "scheduler/prefill_pace.h"

namespace inflight::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr PrefillShare kNoGoal{.beside_decode = 1 << 20, .alone = 1 << 20};

// A scheduler whose steps finish as soon as they are planned, unless a test says otherwise.
class SchedulerTest : public ::testing::Test {
 protected:
  void Make(const SchedulerOptions& options, int64_t num_blocks = 64, int block_size = 4) {
    const kv_cache::GroupConfig group{.num_blocks = num_blocks, .block_size = block_size};
    cache_ = std::make_unique<kv_cache::KvCache>(std::span(&group, 1), /*reuse=*/true);
    scheduler_ = std::make_unique<Scheduler>(options, cache_.get());
  }

  // Plans a step that stays in flight until Collect.
  const StepPlan& Launch() {
    scheduler_->Plan(kNoGoal, &step_);
    for (SequenceState* sequence : step_.rows) ++sequence->num_rows_in_flight;
    in_flight_.push_back(step_.rows);
    return step_.plan;
  }
  void Collect() {
    for (SequenceState* sequence : in_flight_.front()) --sequence->num_rows_in_flight;
    in_flight_.pop_front();
  }

  // A row of the sequence was collected and yielded one token.
  static void Grow(SequenceState* sequence, std::vector<TokenId>* tokens) {
    sequence->num_kv_tokens = static_cast<int>(tokens->size());
    tokens->push_back(static_cast<TokenId>(tokens->size()));
  }

  SequenceState* Add(int prompt_len, int max_tokens, float priority = 0.5F) {
    auto& tokens = tokens_.emplace_back(static_cast<size_t>(prompt_len));
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(1000 * tokens_.size()));
    return AddTokens(max_tokens, priority);
  }

  SequenceState* AddTokens(int max_tokens, float priority = 0.5F) {
    SequenceState& sequence = sequences_.emplace_back();
    sequence.tokens = &tokens_.back();
    sequence.priority = priority;
    sequence.arrival = sequences_.size();
    sequence.max_seq_len = static_cast<int>(tokens_.back().size()) + max_tokens;
    scheduler_->Add(&sequence);
    return &sequence;
  }

  SequenceState* AddBeams(int num_beams, int prompt_len, int max_tokens) {
    auto& tokens = tokens_.emplace_back(static_cast<size_t>(prompt_len));
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(1000 * tokens_.size()));
    SequenceState& sequence = sequences_.emplace_back();
    sequence.tokens = &tokens;
    sequence.num_beams = num_beams;
    sequence.arrival = sequences_.size();
    sequence.max_seq_len = prompt_len + max_tokens;
    scheduler_->Add(&sequence);
    return &sequence;
  }

  // Plans a step and pretends that it was collected.
  const StepPlan& Plan(const PrefillShare& share = kNoGoal) {
    scheduler_->Plan(share, &step_);
    for (int r = 0; r < step_.plan.num_rows; ++r) {
      if (row(r).is_prefill != 0) {
        scheduler_->Publish(step_.rows[static_cast<size_t>(r)],
                            row(r).first_position + row(r).num_query_tokens);
      }
    }
    return step_.plan;
  }

  const PlanRow& row(int r) const { return step_.plan.rows[static_cast<size_t>(r)]; }

  std::vector<int> QueryTokens() const {
    std::vector<int> counts;
    for (int r = 0; r < step_.plan.num_rows; ++r) counts.push_back(row(r).num_query_tokens);
    return counts;
  }

  void End(SequenceState* sequence) {
    scheduler_->Remove(sequence);
    scheduler_->Release(sequence, 0);
  }

  std::unique_ptr<kv_cache::KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  PlannedStep step_;
  std::deque<std::vector<TokenId>> tokens_;
  std::deque<SequenceState> sequences_;
  std::deque<std::vector<SequenceState*>> in_flight_;
};

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

TEST_F(SchedulerTest, NobodyNewStartsWhileTheQueueIsHeldBack) {
  Make({.max_batch_size = 4, .max_num_tokens = 24, .max_slots = 4});
  SequenceState* a = Add(4, 4);
  scheduler_->Plan(kNoGoal, &step_, /*may_start=*/false);
  EXPECT_THAT(step_.admitted, IsEmpty());
  Plan();
  EXPECT_THAT(step_.admitted, ElementsAre(a));
}

// ---- PrefillPace ----

// ---- beam search ----

TEST_F(SchedulerTest, BeamsAreAdmittedTogetherAndEachHasARow) {
  Make({.max_batch_size = 4, .max_num_tokens = 32, .max_slots = 4});
  SequenceState* search = AddBeams(/*num_beams=*/3, /*prompt_len=*/6, /*max_tokens=*/5);
  SequenceState* second = AddBeams(2, 4, 4);
  Plan();
  EXPECT_THAT(QueryTokens(), ElementsAre(6)) << "the prompt once; two more do not fit beside three";
  EXPECT_EQ(step_.plan.num_yields, 1);
  EXPECT_EQ(search->beam_slots.size(), 3u);
  EXPECT_EQ(second->phase, Phase::kWaiting);
  EXPECT_EQ(scheduler_->num_running_rows(), 3);
  scheduler_->Reorder(search, std::vector<int32_t>{0, 0, 0}, 6);
  const StepPlan& plan = Plan();
  EXPECT_EQ(plan.num_decode_rows, 3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(row(r).slot, search->beam_slots[static_cast<size_t>(r)]);
    EXPECT_EQ(row(r).first_position, 6);
    EXPECT_EQ(row(r).yields, 1);
  }
  End(search);
  EXPECT_EQ(scheduler_->num_running_rows(), 0);
  Plan();
  EXPECT_EQ(second->phase, Phase::kDecode);
  End(second);
  EXPECT_EQ(cache_->stats().blocks_used, 0);
}

TEST_F(SchedulerTest, APlanCarriesOpenAndSpareBlocksAndNoTables) {
  Make({.max_batch_size = 4, .max_num_tokens = 32, .max_slots = 4});
  SequenceState* search = AddBeams(2, /*prompt_len=*/6, /*max_tokens=*/9);
  const auto num_spares = [&](const StepPlan& plan) {
    return std::count_if(plan.updates.begin(), plan.updates.begin() + plan.num_updates,
                         [](const auto& u) { return u.first_idx == BlockTableUpdate::kSpare; });
  };
  EXPECT_EQ(Plan().num_block_ids, 4);  // 2 of the prompt, 2 spares
  EXPECT_EQ(num_spares(step_.plan), 2);
  scheduler_->Reorder(search, std::vector<int32_t>{0, 0}, 6);
  EXPECT_EQ(Plan().num_block_ids, 1) << "the spare that beam 1 used up";
  EXPECT_EQ(num_spares(step_.plan), 1);
  scheduler_->Reorder(search, std::vector<int32_t>{1, 0}, 7);
  EXPECT_EQ(Plan().num_block_ids, 0) << "spares changed places with open blocks";
  scheduler_->Reorder(search, std::vector<int32_t>{1, 1}, 8);
  EXPECT_EQ(Plan().num_block_ids, 2) << "both begin a block";
  EXPECT_EQ(num_spares(step_.plan), 0);
}

TEST_F(SchedulerTest, BeamsAreNotLookedAheadAndOthersAre) {
  Make({.max_batch_size = 4, .max_num_tokens = 32, .max_slots = 6});
  SequenceState* search = AddBeams(2, 4, 4);
  SequenceState* plain = Add(4, 9);
  Launch();
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(plain)) << "the prompt of the search is in flight";
  Collect();
  scheduler_->Reorder(search, std::vector<int32_t>{0, 0}, 4);
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(search, search, plain));
}

TEST_F(SchedulerTest, PausedBeamsGiveBackAllSlotsAndBlocks) {
  Make({.max_batch_size = 8,
        .max_num_tokens = 32,
        .max_slots = 8,
        .policy = SchedulerPolicy::kMaxUtilization},
       /*num_blocks=*/12);
  SequenceState* first = Add(4, 40);
  SequenceState* search = AddBeams(2, 4, 12);
  Plan();
  EXPECT_EQ(search->phase, Phase::kDecode);
  for (int n = 4; search->num_pauses == 0; ++n) {
    ASSERT_LT(n, 20) << "memory was not under pressure";
    scheduler_->Reorder(search, std::vector<int32_t>{0, n == 4 ? 0 : 1}, n);
    Plan();
  }
  EXPECT_EQ(search->phase, Phase::kWaiting);
  EXPECT_EQ(search->slot, -1);
  EXPECT_TRUE(search->beam_slots.empty());
  EXPECT_EQ(scheduler_->num_running_rows(), 1);
  End(first);
  Plan();
  EXPECT_EQ(search->num_prefill_tokens, 4) << "it begins again";
  End(search);
  EXPECT_EQ(cache_->stats().blocks_used, 0);
}

TEST(PrefillPaceTest, BeginsWithOneBlockAndLearnsTheCostOfAToken) {
  PrefillPace pace(/*goal_ns=*/1'000'000, /*max_num_tokens=*/4096);
  EXPECT_EQ(pace.share().alone, 1);  // the scheduler makes a block of it
  pace.Observe(640'000, 0, 64);      // 10 us a token
  EXPECT_EQ(pace.share().alone, 100);
  EXPECT_EQ(pace.share().beside_decode, 100) << "no decode step was seen";
}

TEST(PrefillPaceTest, DecodeRowsTakeTheirTimeFirst) {
  PrefillPace pace(1'000'000, 4096);
  pace.Observe(400'000, 8, 0);
  pace.Observe(400'000 + 640'000, 8, 64);
  EXPECT_EQ(pace.share().beside_decode, 60);
  EXPECT_EQ(pace.share().alone, 100);
}

TEST(PrefillPaceTest, NeverExceedsTheHardLimitAndNeverStops) {
  PrefillPace fast(1'000'000'000, 512);
  fast.Observe(100, 0, 64);
  EXPECT_EQ(fast.share().alone, 512);
  PrefillPace slow(1'000, 512);
  slow.Observe(1'000'000, 4, 0);
  slow.Observe(2'000'000, 4, 64);
  EXPECT_EQ(slow.share().beside_decode, 1);
  EXPECT_EQ(PrefillPace(0, 512).share().alone, 512) << "no goal";
}

TEST(PrefillPaceTest, StepTimeSettlesAtTheGoal) {
  PrefillPace pace(/*goal_ns=*/10'000'000, 4096);
  // A device of 2 ms a step and 20 us a prompt token.
  int64_t step_ns = 0;
  for (int i = 0; i < 50; ++i) {
    const int tokens = std::max(64, pace.share().alone);
    step_ns = 2'000'000 + 20'000 * tokens;
    pace.Observe(step_ns, 0, tokens);
  }
  EXPECT_NEAR(static_cast<double>(step_ns), 10e6, 0.2e6);
}

}  // namespace
}  // namespace inflight::scheduler

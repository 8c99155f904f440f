// SPDX-License-Identifier: Apache-2.0
// Beam search: one request, a row for each beam.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_fixture.h"

namespace inflight::scheduler {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace inflight::scheduler

// SPDX-License-Identifier: Apache-2.0
#include "executor/pending_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

namespace inflight::executor {
namespace {

using scheduler::PlanRow;
using scheduler::SlotId;
using scheduler::StepPlan;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using OfSlot = PendingPairs::OfSlot;

constexpr int kTestRing = 32;
constexpr int kMostRows = 64;

// Its first 5 nodes are two deep at least: 2 choices of the first token, and children.
decoding::DraftTree SmallTree() {
  const std::vector<decoding::DraftTree::Path> paths = {{0}, {0, 0}, {1}, {0, 1}, {0, 0, 0}};
  return *decoding::DraftTree::Make(paths, /*max_depth=*/3);
}

PlanRow DecodeRow(SlotId slot, int num_drafts = 0) {
  return {.slot = slot,
          .num_query_tokens = 1 + num_drafts,
          .yields = 1,
          .num_draft_tokens = static_cast<uint8_t>(num_drafts)};
}
PlanRow PromptRow(SlotId slot) {
  return {.slot = slot, .num_query_tokens = 20, .is_prefill = 1, .yields = 1};
}

class PendingPairsTest : public ::testing::Test {
 protected:
  // Plans a step and settles it; returns what had to be computed before.
  std::vector<OfSlot> Step(std::initializer_list<PlanRow> rows) {
    plan_->num_rows = 0;
    for (const PlanRow& row : rows) plan_->rows[static_cast<size_t>(plan_->num_rows++)] = row;
    const auto due = pending_.Plan(*plan_);
    std::vector<OfSlot> out(due.begin(), due.end());
    before_ = pending_.Before(0);
    pending_.Settle(*plan_);
    return out;
  }

  PendingPairs pending_{1100, SmallTree(), kTestRing, kMostRows, /*has_window=*/false};
  std::unique_ptr<StepPlan> plan_ = std::make_unique<StepPlan>();
  int before_ = 0;  // slot 0's last pair, in the step planned last
};

TEST_F(PendingPairsTest, APromptLeavesNone) {
  Step({PromptRow(0)});
  EXPECT_EQ(pending_.Of(0), 0);
}

TEST_F(PendingPairsTest, PlainRowsFillTheRingAndNoMore) {
  Step({PromptRow(0)});
  for (int i = 1; i <= kTestRing; ++i) {
    EXPECT_THAT(Step({DecodeRow(0)}), IsEmpty());
    EXPECT_EQ(pending_.Of(0), i);
  }
  EXPECT_THAT(Step({DecodeRow(0)}), ElementsAre(OfSlot{0, kTestRing}));
  EXPECT_EQ(pending_.Of(0), 1);
}

TEST_F(PendingPairsTest, AFullRingHasTheOthersComputedWithIt) {
  Step({PromptRow(0)});
  for (int i = 0; i < kTestRing - 3; ++i) Step({DecodeRow(0)});
  Step({DecodeRow(0), PromptRow(7)});
  for (int i = 0; i < 2; ++i) Step({DecodeRow(0), DecodeRow(7)});
  EXPECT_THAT(Step({DecodeRow(0), DecodeRow(7)}), ElementsAre(OfSlot{0, kTestRing}, OfSlot{7, 2}));
}

// A node of depth d may settle d pairs beside that of the newest token.
TEST_F(PendingPairsTest, ADraftedRowSettlesAsManyAsItsTreeIsDeep) {
  Step({PromptRow(0)});
  Step({DecodeRow(0, 1)});
  EXPECT_EQ(pending_.Of(0), 2);
  Step({DecodeRow(0, 5)});
  EXPECT_EQ(before_, 1);
  EXPECT_EQ(pending_.Of(0), 4);
}

TEST_F(PendingPairsTest, ThePassThatDraftsComputesAFew) {
  Step({PromptRow(0)});
  for (int i = 0; i <= PendingPairs::kFew; ++i) Step({DecodeRow(0)});
  EXPECT_THAT(Step({DecodeRow(0, 5)}), IsEmpty());
  EXPECT_EQ(before_, PendingPairs::kFew);
  EXPECT_EQ(pending_.Of(0), 4) << "of this step alone";
}

TEST_F(PendingPairsTest, MoreThanAFewComeBeforeDrafts) {
  Step({PromptRow(0)});
  Step({DecodeRow(0), PromptRow(1)});
  for (int i = 0; i <= PendingPairs::kFew; ++i) Step({DecodeRow(0), DecodeRow(1)});
  EXPECT_THAT(Step({DecodeRow(0, 2), DecodeRow(1)}),
              ElementsAre(OfSlot{0, PendingPairs::kFew + 2}, OfSlot{1, PendingPairs::kFew + 1}));
  EXPECT_EQ(before_, 0);
  EXPECT_EQ(pending_.Of(1), 1);
}

// 60 rows of drafts leave room for 4 pairs in a pass of 64.
TEST_F(PendingPairsTest, APassThatIsFullLeavesThemToComeBefore) {
  const auto step = [&](int num_drafts) {
    plan_->num_rows = 0;
    for (SlotId slot = 0; slot < 60; ++slot)
      plan_->rows[static_cast<size_t>(plan_->num_rows++)] = DecodeRow(slot, num_drafts);
    const auto due = pending_.Plan(*plan_);
    std::vector<OfSlot> out(due.begin(), due.end());
    int num_in_pass = 0;
    for (SlotId slot = 0; slot < 60; ++slot) num_in_pass += pending_.Before(slot);
    if (num_drafts > 0) {
      EXPECT_LE(num_in_pass, 4);
    }
    pending_.Settle(*plan_);
    return out;
  };
  step(0);
  EXPECT_THAT(step(0), IsEmpty());
  EXPECT_THAT(step(0), IsEmpty());
  const std::vector<OfSlot> due = step(1);  // 2 before each slot's last
  EXPECT_EQ(due.size(), 58);
  for (const OfSlot& of : due) EXPECT_EQ(of.num_pairs, 3);
}

TEST_F(PendingPairsTest, WhoHasNoRowMayBeAboutToEnd) {
  Step({PromptRow(0), PromptRow(1)});
  for (int i = 0; i < 3; ++i) Step({DecodeRow(0), DecodeRow(1)});
  EXPECT_THAT(Step({DecodeRow(1)}), ElementsAre(OfSlot{0, 3}, OfSlot{1, 3}));
  EXPECT_THAT(Step({DecodeRow(1)}), IsEmpty());
}

TEST_F(PendingPairsTest, WhatIsLeftOfASlotsSequenceIsToldAsItGetsAnother) {
  Step({PromptRow(0)});
  for (int i = 0; i < 3; ++i) Step({DecodeRow(0)});
  EXPECT_EQ(pending_.SetUp(0, /*is_followed=*/true), 3);
  EXPECT_EQ(pending_.SetUp(0, /*is_followed=*/true), 0);
  EXPECT_THAT(Step({PromptRow(0)}), IsEmpty());
}

TEST_F(PendingPairsTest, OfWindowsAReusedBlockMayBeThatOfWhoGoesOn) {
  PlanRow later = PromptRow(1);
  later.first_position = 16;
  for (const bool has_window : {false, true}) {
    PendingPairs pending(4, SmallTree(), kTestRing, kMostRows, has_window);
    plan_->num_rows = 1;
    plan_->rows[0] = DecodeRow(0);
    pending.Plan(*plan_);
    pending.Settle(*plan_);
    plan_->num_rows = 2;
    plan_->rows[1] = later;
    EXPECT_EQ(pending.Plan(*plan_).size(), has_window ? 1 : 0);
  }
}

TEST_F(PendingPairsTest, BeamsAreNotFollowed) {
  pending_.SetUp(0, /*is_followed=*/false);
  Step({PromptRow(0)});
  for (int i = 0; i < 2 * kTestRing; ++i) EXPECT_THAT(Step({DecodeRow(0)}), IsEmpty());
  EXPECT_EQ(pending_.Of(0), 0);
}

TEST_F(PendingPairsTest, ManySequencesWaitForNoRing) {
  const auto step = [&] {
    plan_->num_rows = 0;
    for (SlotId slot = 0; slot < 400; ++slot)
      plan_->rows[static_cast<size_t>(plan_->num_rows++)] = DecodeRow(slot);
    const size_t num_due = pending_.Plan(*plan_).size();
    pending_.Settle(*plan_);
    return num_due;
  };
  EXPECT_EQ(step(), 0);
  EXPECT_EQ(step(), 0);
  EXPECT_EQ(step(), 400) << "3 of each would be more than kMostInAll";
  EXPECT_EQ(step(), 0);
}

}  // namespace
}  // namespace inflight::executor

// SPDX-License-Identifier: Apache-2.0
// Several steps under way whose tokens nobody knows: each has its share of what there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_fixture.h"

namespace inflight::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SchedulerOptions Stages(int depth) {
  return {.max_batch_size = 16,
          .max_num_tokens = 256,
          .max_slots = 16 + depth - 1,
          .depth = depth,
          .looks_ahead = false};
}

TEST_F(SchedulerTest, ARowIsNotPlannedBeforeItsTokenIsKnown) {
  Make(Stages(2));
  SequenceState* one = Add(4, 9);
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(one));
  Launch();
  EXPECT_THAT(step_.rows, IsEmpty()) << "its first token is in flight";
  Collect();
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(one));
}

TEST_F(SchedulerTest, EachStageDecodesOthers) {
  SchedulerOptions options = Stages(3);
  options.max_batch_size = 21;  // so that a step has room for seven rows
  options.max_slots = 23;
  Make(options);
  std::vector<SequenceState*> all;
  for (int i = 0; i < 7; ++i) all.push_back(Add(4, 9));
  Launch();
  ASSERT_THAT(step_.rows, testing::SizeIs(7));
  Collect();
  for (int round = 0; round < 3; ++round) {
    Launch();
    EXPECT_THAT(step_.rows, ElementsAre(all[0], all[1], all[2]));
    Launch();
    EXPECT_THAT(step_.rows, ElementsAre(all[3], all[4], all[5]));
    Launch();
    EXPECT_THAT(step_.rows, ElementsAre(all[6]));
    for (int i = 0; i < 3; ++i) Collect();
  }
  // Whoever was collected goes on beside the others.
  Launch();
  Launch();
  Launch();
  Collect();
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(all[0], all[1], all[2]));
}

TEST_F(SchedulerTest, APromptIsCutForAllStages) {
  Make(Stages(4), /*num_blocks=*/256);
  SequenceState* prompt = Add(400, 9);
  for (int i = 0; i < 4; ++i) {
    Launch();
    EXPECT_THAT(step_.rows, ElementsAre(prompt));
    EXPECT_THAT(QueryTokens(), ElementsAre(100)) << i;
    EXPECT_EQ(row(0).yields, i == 3 ? 1 : 0);
  }
}

TEST_F(SchedulerTest, AShortPromptIsNotCutForStages) {
  Make(Stages(4), 256);
  Add(Scheduler::kLeastStageTokens, 9);
  Launch();
  EXPECT_THAT(QueryTokens(), ElementsAre(Scheduler::kLeastStageTokens));
}

TEST_F(SchedulerTest, APromptThatHasNoPlaceHasNoPartInTheShare) {
  SchedulerOptions options = Stages(4);
  options.max_batch_size = 1;
  options.max_slots = 4;
  Make(options, /*num_blocks=*/256);
  SequenceState* prompt = Add(400, 9);
  Add(400, 9);
  for (int i = 0; i < 4; ++i) {
    Launch();
    EXPECT_THAT(step_.rows, ElementsAre(prompt));
    EXPECT_THAT(QueryTokens(), ElementsAre(100)) << i;
  }
}

TEST_F(SchedulerTest, ManyPromptsAreSpreadOverStages) {
  Make(Stages(2), 256);
  for (int i = 0; i < 10; ++i) Add(20, 9);
  Launch();
  EXPECT_THAT(QueryTokens(), ElementsAre(20, 20, 20, 20, 20));
  Launch();
  EXPECT_THAT(QueryTokens(), ElementsAre(20, 20, 20, 20, 20));
}

TEST_F(SchedulerTest, ASearchThatIsMoreThanAShareHasAStepOfItsOwn) {
  Make(Stages(2));
  SequenceState* search = AddBeams(5, 4, 9);
  SequenceState* plain = Add(4, 9);
  Launch();
  ASSERT_THAT(step_.rows, ElementsAre(search, plain));
  Collect();
  scheduler_->Reorder(search, std::vector<int32_t>{0, 0, 0, 0, 0}, 4);
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(search, search, search, search, search));
  Launch();
  EXPECT_THAT(step_.rows, ElementsAre(plain));
}

// Those before it fill each step, and are in flight in turns.
TEST_F(SchedulerTest, ASearchComesToItsTurnAmongManyOthers) {
  SchedulerOptions options = Stages(2);
  options.max_batch_size = 18;
  options.max_slots = 19;
  Make(options, 256);
  for (int i = 0; i < 10; ++i) Add(4, 40);
  for (int step = 0; step < 3; ++step) {  // all have computed their prompts
    Launch();
    Collect();
  }
  Launch();
  EXPECT_THAT(step_.rows, testing::SizeIs(5));
  SequenceState* search = AddBeams(8, 4, 9);
  const auto comes = [&](int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      Launch();
      const bool is_there = testing::Value(step_.rows, testing::Contains(search));
      Collect();
      if (is_there) return true;
    }
    return false;
  };
  ASSERT_TRUE(comes(3)) << "its prompt";
  Launch();  // five of the others, beside the five that are in flight with the prompt
  Collect();
  scheduler_->Reorder(search, std::vector<int32_t>(8, 0), 4);
  EXPECT_TRUE(comes(6));
}

TEST_F(SchedulerTest, WhoLooksAheadIsNotSpread) {
  SchedulerOptions options = Stages(2);
  options.looks_ahead = true;
  Make(options, 256);
  Add(200, 9);
  Launch();
  EXPECT_THAT(QueryTokens(), ElementsAre(200));
  Launch();
  EXPECT_THAT(QueryTokens(), ElementsAre(1));
}

}  // namespace
}  // namespace inflight::scheduler

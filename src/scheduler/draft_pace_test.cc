// SPDX-License-Identifier: Apache-2.0
#include "scheduler/draft_pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace inflight::scheduler {
namespace {

// Steps of `base_ns` + 100 ns a token, in turns of one token and of five, each of which yields one.
DraftPace PaceOf(int64_t base_ns) {
  DraftPace pace(4);
  for (int i = 0; i < 100; ++i) {
    const int num_tokens = i % 2 == 0 ? 1 : 5;
    pace.Observe(base_ns + 100 * num_tokens, num_tokens, 1);
  }
  return pace;
}

TEST(DraftPaceTest, PriceOfATokenIsItsTimeTimesWhatTheTimeYields) {
  // On average a step has 3 tokens, takes 900 + 300 ns and yields 1.
  EXPECT_NEAR(PaceOf(900).price(), 100.0 / 1200, 0.001);
  EXPECT_NEAR(PaceOf(100).price(), 100.0 / 400, 0.003);
  EXPECT_NEAR(PaceOf(0).price(), 1.0 / 3, 0.005);
}

TEST(DraftPaceTest, PriceIsGuessedUntilStepsDiffer) {
  DraftPace pace(4);
  EXPECT_EQ(pace.price(), 0.25);
  for (int i = 0; i < 9; ++i) pace.Observe(1000, 1, 1);
  EXPECT_EQ(pace.price(), 0.25);
  pace.Observe(1500, 2, 1);
  EXPECT_NEAR(pace.price(), 500.0 / 1050, 0.06);
  for (int i = 0; i < 1000; ++i) pace.Observe(1000, 1, 1);
  EXPECT_NEAR(pace.price(), 500.0 / 1050, 0.06) << "what was known last";
}

// 0.5, 0.25 and 0.125 lie above the price of 1/12, 0.0625 does not.
TEST(DraftPaceTest, TheLastDraftIsTheOneThatStillPays) {
  const DraftPace pace = PaceOf(900);
  EXPECT_EQ(pace.Length({.accepted = 0.5, .has_any = true}), 3);
  EXPECT_EQ(pace.Length({.accepted = 0.3, .has_any = true}), 2);
  EXPECT_EQ(pace.Length({.accepted = 0.9, .has_any = true}), 4) << "the bound of a row";
  EXPECT_EQ(pace.Length({.accepted = 0.05, .has_any = true}), 0);
  EXPECT_EQ(DraftPace(0).Length({.accepted = 1, .has_any = true}), 0);
}

TEST(DraftPaceTest, DraftsThatFailAreTriedMoreAndMoreSeldom) {
  DraftPace pace = PaceOf(900);
  DraftRecord record;
  int num_rows = 0;
  int last_try = 0;
  int longest_pause = 0;
  for (int i = 0; i < 4000; ++i) {
    const int length = pace.Length(record);
    pace.Note(&record, length, 0);
    pace.CountStep();
    if (length == 0) continue;
    ++num_rows;
    longest_pause = std::max(longest_pause, i - last_try);
    last_try = i;
  }
  EXPECT_LT(num_rows, 30);
  EXPECT_GT(longest_pause, 200);
}

TEST(DraftPaceTest, DraftsThatAreAcceptedGrow) {
  DraftPace pace = PaceOf(900);
  DraftRecord record;
  const auto step = [&](int num_accepted_of_each) {
    const int length = pace.Length(record);
    pace.Note(&record, length, std::min(length, num_accepted_of_each));
    pace.CountStep();
  };
  for (int i = 0; i < 100; ++i) step(0);
  EXPECT_EQ(pace.Length({.accepted = record.accepted, .has_any = true}), 0);
  for (int i = 0; i < 1000; ++i) step(4);
  EXPECT_EQ(pace.Length(record), 4);
}

TEST(DraftPaceTest, ThoseThatTryDoSoInTheSameStep) {
  DraftPace pace = PaceOf(900);
  const DraftRecord hopeless{.accepted = 0, .has_any = true, .num_skipped = 500};
  for (int i = 0; i < 3 * DraftPace::kTryEvery; ++i) {
    EXPECT_EQ(pace.Length(hopeless), i % DraftPace::kTryEvery == 0 ? 1 : 0);
    pace.CountStep();
  }
}

TEST(DraftPaceTest, ANewSequenceBeginsWithWhatOthersSaw) {
  DraftPace pace = PaceOf(900);
  EXPECT_EQ(pace.Length({}), 4);  // 0.6 ^ 4 = 0.13
  DraftRecord other;
  for (int i = 0; i < 200; ++i) pace.Note(&other, 1, 0);
  EXPECT_EQ(pace.Length({}), 2) << "0.3 is the least";
}

// At the price of 1/12 a node of chance 0.2 pays and one of 0.05 does not, unless enough behind it
// does.
TEST(DraftPaceTest, OfATreeAsManyNodesAsPay) {
  const auto size = [](std::vector<double> chances, int max = 63) {
    DraftPace pace(max, std::move(chances));
    for (int i = 0; i < 100; ++i)
      pace.Observe(900 + 100 * (i % 2 == 0 ? 1 : 5), i % 2 == 0 ? 1 : 5, 1);
    return pace.Length({.accepted = 0.6, .has_any = true});  // as all sequences at the start
  };
  EXPECT_EQ(size({0.6, 0.4, 0.2, 0.05, 0.04}), 3);
  EXPECT_EQ(size({0.6, 0.4, 0.05, 0.2, 0.04}), 4);
  EXPECT_EQ(size({0.6, 0.4, 0.2, 0.2}, 2), 2) << "the bound of a row";
  EXPECT_EQ(size({0.05, 0.04}), 0);
}

TEST(DraftPaceTest, ANodeIsWorthHowOftenItWasAccepted) {
  DraftPace pace(3, {0.5, 0.5, 0.5});
  DraftRecord record;
  for (int i = 0; i < 1000; ++i) {  // the first and its child, never the other one
    pace.Observe(i % 2 == 0 ? 1000 : 1100, i % 2 == 0 ? 1 : 2, 1);
    pace.Note(&record, 3, 2, 0b011);
  }
  EXPECT_EQ(pace.Length(record), 2);
  for (int i = 0; i < 1000; ++i) pace.Note(&record, 3, 1, 0b100);
  EXPECT_EQ(pace.Length(record), 3) << "the third pays for those before it";
}

}  // namespace
}  // namespace inflight::scheduler

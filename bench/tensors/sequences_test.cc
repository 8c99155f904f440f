// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/sequences.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace inflight::bench {
namespace {

TEST(SequencesTest, EachSlotHasOneSequenceAtATime) {
  Sequences sequences({.length = 2, .variation = 0, .first_id = 7, .last_id = 9}, 1);
  sequences.SetSlots(2);
  const auto expect = [&](size_t slot, uint64_t id, bool is_start, bool is_end, size_t position) {
    const SequenceStep step = sequences.Next(slot);
    EXPECT_EQ(step.id, id);
    EXPECT_EQ(step.is_start, is_start);
    EXPECT_EQ(step.is_end, is_end);
    EXPECT_EQ(sequences.position(slot), position);
  };
  expect(0, 7, true, false, 0);
  expect(1, 8, true, false, 0);
  expect(0, 7, false, true, 1);
  expect(0, 9, true, false, 0);
  expect(1, 8, false, true, 1);
  expect(1, 7, true, false, 0);  // round and round
  sequences.Drop(0);
  expect(0, 8, true, false, 0);
}

TEST(SequencesTest, NoTwoSlotsHaveOneId) {
  Sequences sequences({.length = 2, .variation = 0, .first_id = 1, .last_id = 2}, 1);
  sequences.SetSlots(2);
  EXPECT_EQ(sequences.Next(0).id, 1U);
  EXPECT_EQ(sequences.Next(1).id, 2U);
  EXPECT_TRUE(sequences.Next(1).is_end);
  EXPECT_EQ(sequences.Next(1).id, 2U);  // 1 would be next
}

TEST(SequencesTest, WhatIsCutShortEnds) {
  Sequences sequences({.length = 3, .variation = 0}, 1);
  sequences.SetSlots(1);
  EXPECT_FALSE(sequences.Rest(0).has_value());
  sequences.Next(0);
  const auto rest = sequences.Rest(0);
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->id, 1U);
  EXPECT_TRUE(rest->is_end && !rest->is_start);
  EXPECT_FALSE(sequences.Rest(0).has_value());
}

TEST(SequencesTest, LengthsLieAroundTheOneAskedFor) {
  Sequences sequences({.length = 10, .variation = 0.2}, 3);
  sequences.SetSlots(1);
  std::set<int> lengths;
  for (int i = 0; i < 300; ++i) {
    int length = 1;
    while (!sequences.Next(0).is_end) ++length;
    lengths.insert(length);
  }
  EXPECT_EQ(lengths, (std::set<int>{8, 9, 10, 11, 12}));
}

}  // namespace
}  // namespace inflight::bench

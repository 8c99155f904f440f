// SPDX-License-Identifier: Apache-2.0
#include "scheduler/waiting_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <tuple>
#include <vector>

namespace inflight::scheduler {
namespace {

SequenceState Waiting(float priority, double turn, uint64_t arrival) {
  SequenceState sequence;
  sequence.priority = priority;
  sequence.turn = turn;
  sequence.arrival = arrival;
  return sequence;
}

// Takes them out.
std::vector<uint64_t> ArrivalsOf(WaitingLine& line) {
  std::vector<uint64_t> arrivals;
  while (SequenceState* const first = line.first()) {
    arrivals.push_back(first->arrival);
    line.Erase(first);
  }
  return arrivals;
}

TEST(WaitingLine, PriorityComesFirstThenTurnThenArrival) {
  std::deque<SequenceState> all;
  WaitingLine line;
  EXPECT_EQ(line.first(), nullptr);
  for (const auto& [priority, turn, arrival] : std::vector<std::tuple<float, double, uint64_t>>{
           {0.5F, 2, 1}, {0.5F, 1, 2}, {1.0F, 9, 3}, {0.5F, 1, 4}, {0.0F, 0, 5}})
    line.Insert(&all.emplace_back(Waiting(priority, turn, arrival)));
  EXPECT_EQ(line.size(), 5);
  EXPECT_EQ(ArrivalsOf(line), (std::vector<uint64_t>{3, 2, 4, 1, 5}));
  EXPECT_EQ(line.size(), 0);
}

// Against a sort of what is left, after each of many comings and goings.
TEST(WaitingLine, WhoeverComesAndGoesTheFirstIsTheFirst) {
  std::mt19937 random(23);
  std::deque<SequenceState> all;
  std::vector<SequenceState*> waiting;
  WaitingLine line;
  for (uint64_t arrival = 1; arrival <= 3000; ++arrival) {
    auto& sequence = all.emplace_back(
        Waiting(static_cast<float>(random() % 3) / 2, static_cast<double>(random() % 20), arrival));
    line.Insert(&sequence);
    waiting.push_back(&sequence);
    while (waiting.size() > random() % 60) {
      const auto left = waiting.begin() + static_cast<int64_t>(random() % waiting.size());
      line.Erase(*left);
      waiting.erase(left);
    }
    const auto first = std::ranges::min_element(
        waiting,
        [](const SequenceState* a, const SequenceState* b) { return ComesBefore(*a, *b); });
    ASSERT_EQ(line.first(), first == waiting.end() ? nullptr : *first);
    ASSERT_EQ(line.size(), static_cast<int>(waiting.size()));
  }
}

// Each comes before all that are there, and then each behind them: a line that is looked through
// from either end makes 40,000,000,000 steps of one half.
TEST(WaitingLine, ItsLengthSlowsNobody) {
  constexpr int kHalf = 200'000;
  std::deque<SequenceState> all;
  WaitingLine line;
  for (int i = 0; i < kHalf; ++i) line.Insert(&all.emplace_back(Waiting(0.5F, -i, 0)));
  for (int i = 0; i < kHalf; ++i) line.Insert(&all.emplace_back(Waiting(0.5F, i + 1, 0)));
  ASSERT_EQ(line.size(), 2 * kHalf);
  double last = -kHalf;
  while (SequenceState* const first = line.first()) {
    ASSERT_GT(first->turn, last);
    last = first->turn;
    line.Erase(first);
  }
  EXPECT_EQ(last, kHalf);
}

// As a server does that ends while requests wait.
TEST(WaitingLine, WhatStandsInItMayEndBeforeItOrAfter) {
  std::deque<SequenceState> outlives(1);
  WaitingLine line;
  line.Insert(&outlives.front());
  {
    WaitingLine ends;
    std::deque<SequenceState> with_it(3);
    for (SequenceState& sequence : with_it) ends.Insert(&sequence);
  }
  EXPECT_EQ(line.size(), 1);
}

}  // namespace
}  // namespace inflight::scheduler

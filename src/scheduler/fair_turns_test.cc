// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace inflight::scheduler {
namespace {

TEST(FairTurns, OneClientIsServedInOrderOfArrival) {
  FairTurns turns;
  double last = -1;
  for (const double cost : {5.0, 1.0, 100.0, 1.0}) {
    const double turn = turns.Take(0, 1, cost);
    EXPECT_GT(turn, last);
    last = turn;
  }
}

// Of a queue that always holds requests of all, tokens go by the shares.
TEST(FairTurns, TokensGoByShares) {
  FairTurns turns;
  const std::map<uint64_t, double> shares = {{1, 1}, {2, 2}, {3, 4}};
  const std::map<uint64_t, double> costs = {{1, 10}, {2, 70}, {3, 25}};
  std::set<std::pair<double, uint64_t>> waiting;
  const auto ask = [&](uint64_t client) {
    waiting.emplace(turns.Take(client, shares.at(client), costs.at(client)), client);
  };
  for (int i = 0; i < 10; ++i) {
    for (const auto& [client, share] : shares) ask(client);
  }
  std::map<uint64_t, double> got;
  double all = 0;
  while (all < 70'000) {
    const auto [turn, client] = waiting.extract(waiting.begin()).value();
    turns.Begin(turn);
    got[client] += costs.at(client);
    all += costs.at(client);
    ask(client);
  }
  for (const auto& [client, share] : shares) EXPECT_NEAR(got[client], all * share / 7, 200);
}

TEST(FairTurns, WhoWasAwayHasSavedNothingUp) {
  FairTurns turns;
  const double away = turns.Take(1, 1, 1);
  double turn = 0;
  for (int i = 0; i < 100; ++i) turns.Begin(turn = turns.Take(2, 1, 10));
  EXPECT_EQ(away, 0);
  EXPECT_EQ(turns.Take(1, 1, 10), turn);  // at once, as a client that was never there
  EXPECT_EQ(turns.Take(1, 1, 10), turn + 10);
}

TEST(FairTurns, ClientsThatAreGoneAreForgotten) {
  FairTurns turns;
  for (uint64_t client = 1; client <= 100'000; ++client) turns.Begin(turns.Take(client, 1, 1) + 1);
  EXPECT_LE(turns.num_clients(), 1025U);
}

constexpr float kFirst = 1.0F, kNormal = 0.5F;

// One client's 100 wait, and its 101st passes them all: another one comes after what has begun, not
// after the 100.
TEST(PriorityTurns, WhatBeginsEarlyPutsNobodyBehindItsClientsQueue) {
  PriorityTurns turns;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(turns.Take(kNormal, 1, 1, 10), 10 * i);
  turns.Begin(kNormal, 0);
  turns.Begin(kFirst, turns.Take(kFirst, 1, 1, 10));
  EXPECT_EQ(turns.Take(kNormal, 2, 1, 10), 0);
  EXPECT_EQ(turns.Take(kNormal, 1, 1, 10), 1000);
}

// While those of a lower priority wait for ever, so that their present stands still.
TEST(PriorityTurns, NobodySavesUpWhileOthersOfItsPriorityAreServed) {
  PriorityTurns turns;
  turns.Take(kNormal, 3, 1, 10);
  double turn = 0;
  for (int i = 0; i < 100; ++i) turns.Begin(kFirst, turn = turns.Take(kFirst, 1, 1, 10));
  EXPECT_EQ(turns.Take(kFirst, 2, 1, 10), turn);
}

TEST(PriorityTurns, PrioritiesOfWhichNoneWaitAreForgotten) {
  PriorityTurns turns;
  turns.Take(0, 1, 1, 10);
  for (int i = 1; i <= 1000; ++i) {
    const float priority = static_cast<float>(i) / 1000;
    turns.Begin(priority, turns.Take(priority, 1, 1, 10));
    turns.Leave(priority);
  }
  EXPECT_LE(turns.num_priorities(), 65U);
  EXPECT_EQ(turns.Take(0, 1, 1, 10), 10) << "one waits";
}

}  // namespace
}  // namespace inflight::scheduler

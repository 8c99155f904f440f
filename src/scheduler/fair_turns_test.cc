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

}  // namespace
}  // namespace inflight::scheduler

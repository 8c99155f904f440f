// SPDX-License-Identifier: Apache-2.0
#include "executor/request_stats_ring.h"

#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

std::vector<int64_t> TakeIters(RequestStatsRing& ring) {
  std::vector<RequestStatsPerIteration> records;
  ring.Take(&records);
  std::vector<int64_t> iters;
  for (const RequestStatsPerIteration& record : records) iters.push_back(record.iter);
  return iters;
}

TEST(RequestStatsRing, IsTakenInOrderAndOnceAndTheOldestGiveWay) {
  RequestStatsRing ring(3);
  for (int i = 0; i < 2; ++i) ring.Push({.iter = i});
  EXPECT_EQ(TakeIters(ring), (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(TakeIters(ring).empty());
  for (int i = 2; i < 10; ++i) ring.Push({.iter = i});
  EXPECT_EQ(TakeIters(ring), (std::vector<int64_t>{7, 8, 9}));
}

TEST(RequestStatsRing, OfNoCapacityKeepsNothing) {
  RequestStatsRing ring(0);
  ring.Push({.iter = 1});
  EXPECT_TRUE(TakeIters(ring).empty());
}

}  // namespace
}  // namespace inflight::executor

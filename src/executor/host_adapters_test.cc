// SPDX-License-Identifier: Apache-2.0
#include "executor/host_adapters.h"

#include <gtest/gtest.h>

namespace inflight::executor {
namespace {

constexpr size_t kBytes = 1000;  // of an adapter's numbers
constexpr uint64_t kWithRows = kBytes + sizeof(LoraTensors) + sizeof(LoraTensors::Row);

std::shared_ptr<const LoraTensors> Adapter(size_t bytes = kBytes) {
  LoraTensors tensors;
  tensors.rows.resize(1);
  tensors.weights.resize(bytes);
  return std::make_shared<const LoraTensors>(std::move(tensors));
}

AdapterKey KeyOf(uint64_t client, uint64_t id) { return {.client_id = client, .id = id}; }

TEST(HostAdaptersTest, TheOneThatWasNotUsedForTheLongestTimeGoesFirst) {
  HostAdapters kept(3 * kWithRows);
  for (const uint64_t id : {1, 2, 3}) kept.Keep(KeyOf(0, id), Adapter());
  EXPECT_EQ(kept.used_bytes(), 3 * kWithRows);
  EXPECT_NE(kept.Find(KeyOf(0, 1)), nullptr);
  kept.Keep(KeyOf(0, 4), Adapter());
  EXPECT_EQ(kept.Find(KeyOf(0, 2)), nullptr);
  for (const uint64_t id : {1, 3, 4}) EXPECT_NE(kept.Find(KeyOf(0, id)), nullptr) << id;
  EXPECT_EQ(kept.used_bytes(), 3 * kWithRows);
}

TEST(HostAdaptersTest, AnIdHasWhatItsClientBroughtLast) {
  HostAdapters kept(10 * kWithRows);
  const auto first = Adapter();
  const auto second = Adapter();
  const auto others = Adapter();
  kept.Keep(KeyOf(7, 1), first);
  kept.Keep(KeyOf(8, 1), others);
  kept.Keep(KeyOf(7, 1), second);
  EXPECT_EQ(kept.Find(KeyOf(7, 1)), second);
  EXPECT_EQ(kept.Find(KeyOf(8, 1)), others);
  EXPECT_EQ(kept.used_bytes(), 2 * kWithRows);
}

TEST(HostAdaptersTest, AClientTakesNoRoomOfOneWhoHasLess) {
  HostAdapters kept(4 * kWithRows);
  kept.Keep(KeyOf(1, 1), Adapter());
  for (uint64_t id = 0; id < 20; ++id) kept.Keep(KeyOf(2, id), Adapter());
  EXPECT_NE(kept.Find(KeyOf(1, 1)), nullptr);
  EXPECT_NE(kept.Find(KeyOf(2, 19)), nullptr);
  EXPECT_EQ(kept.Find(KeyOf(2, 16)), nullptr);
}

TEST(HostAdaptersTest, WhatIsLargerThanAllTheRoomIsNotKept) {
  HostAdapters kept(kWithRows);
  kept.Keep(KeyOf(0, 1), Adapter());
  kept.Keep(KeyOf(0, 2), Adapter(kBytes + 1));
  EXPECT_EQ(kept.Find(KeyOf(0, 2)), nullptr);
  EXPECT_NE(kept.Find(KeyOf(0, 1)), nullptr);
  HostAdapters none(0);
  none.Keep(KeyOf(0, 1), Adapter(0));
  EXPECT_EQ(none.Find(KeyOf(0, 1)), nullptr);
}

}  // namespace
}  // namespace inflight::executor

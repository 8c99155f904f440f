// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/response_store.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::openai {
namespace {

constexpr Identity kOne = {1};
constexpr Identity kTwo = {2};

constexpr int64_t kSecondNs = 1'000'000'000;

StoredResponse OfBytes(size_t bytes) { return {.conversation = std::string(bytes, 'a')}; }

TEST(ResponseStore, AClientFindsItsOwnAlone) {
  ResponseStore store(1 << 20, 60, nullptr);
  ASSERT_TRUE(store.Put(kOne, "a", {.conversation = "c", .response = "r"}));
  ASSERT_NE(store.Find(kOne, "a"), nullptr);
  EXPECT_EQ(store.Find(kOne, "a")->response, "r");
  EXPECT_EQ(store.Find(kTwo, "a"), nullptr);
  EXPECT_FALSE(store.Remove(kTwo, "a"));
  EXPECT_TRUE(store.Remove(kOne, "a"));
  EXPECT_EQ(store.Find(kOne, "a"), nullptr);
  EXPECT_EQ(store.num_bytes(), 0U);
}

TEST(ResponseStore, WhatWasUsedLongAgoMakesRoom) {
  ResponseStore store(30'000, 60, nullptr);
  for (const char* id : {"a", "b"}) ASSERT_TRUE(store.Put(kOne, id, OfBytes(10'000)));
  EXPECT_NE(store.Find(kOne, "a"), nullptr);  // so that b is the one
  ASSERT_TRUE(store.Put(kTwo, "c", OfBytes(10'000)));
  EXPECT_NE(store.Find(kOne, "a"), nullptr);
  EXPECT_EQ(store.Find(kOne, "b"), nullptr);
  EXPECT_NE(store.Find(kTwo, "c"), nullptr);
  EXPECT_FALSE(store.Put(kOne, "d", OfBytes(30'000))) << "there is never so much room";
  EXPECT_NE(store.Find(kOne, "a"), nullptr) << "nothing is dropped for it";
  EXPECT_LE(store.num_bytes(), 30'000U);
}

TEST(ResponseStore, AClientThatKeepsMuchPushesOutItsOwnAlone) {
  ResponseStore store(50'000, 60, nullptr);
  ASSERT_TRUE(store.Put(kOne, "one", OfBytes(10'000)));
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(store.Put(kTwo, std::to_string(i), OfBytes(10'000))) << i;
  EXPECT_NE(store.Find(kOne, "one"), nullptr);
  EXPECT_EQ(store.Find(kTwo, "16"), nullptr);
  EXPECT_NE(store.Find(kTwo, "17"), nullptr);
  ASSERT_TRUE(store.Put(kOne, "more", OfBytes(10'000)));
  EXPECT_NE(store.Find(kOne, "one"), nullptr);
  EXPECT_FALSE(store.Put(kOne, "large", OfBytes(35'000))) << "the other would have less";
  EXPECT_NE(store.Find(kOne, "one"), nullptr) << "nothing is dropped for it";
}

TEST(ResponseStore, WhatIsNotUsedGoes) {
  ManualClock clock;
  ResponseStore store(1 << 20, 60, nullptr, clock);
  ASSERT_TRUE(store.Put(kOne, "a", OfBytes(1)));
  clock.AdvanceNs(60 * kSecondNs);
  EXPECT_NE(store.Find(kOne, "a"), nullptr);
  clock.AdvanceNs(60 * kSecondNs);
  EXPECT_NE(store.Find(kOne, "a"), nullptr) << "it was used 60 s ago";
  clock.AdvanceNs(61 * kSecondNs);
  EXPECT_EQ(store.Find(kOne, "a"), nullptr);
  EXPECT_EQ(store.num_bytes(), 0U);
}

TEST(ResponseStore, ItsMemoryIsOfTheAccount) {
  const auto account = MemoryAccount::Make(MemoryLimits::Of(1'000'000));
  {
    ResponseStore store(size_t{1} << 30, 60, account);
    for (int i = 0; i < 20; ++i)
      ASSERT_TRUE(store.Put(kOne, std::to_string(i), OfBytes(100'000))) << i;
    EXPECT_EQ(account->used_bytes(), store.num_bytes());
    EXPECT_LT(store.num_bytes(), 1'000'000U);
    EXPECT_NE(store.Find(kOne, "19"), nullptr);
    EXPECT_EQ(store.Find(kOne, "0"), nullptr);
    EXPECT_FALSE(store.Put(kOne, "large", OfBytes(2'000'000)));
  }
  EXPECT_EQ(account->used_bytes(), 0U);
}

}  // namespace
}  // namespace inflight::openai

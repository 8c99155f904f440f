// SPDX-License-Identifier: Apache-2.0
#include "base/fair_lru.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace inflight {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Identity kOne = {1};
constexpr Identity kTwo = {2};
constexpr Identity kThree = {3};

class FairLruTest : public testing::Test {
 protected:
  static constexpr uint64_t kLimit = 10;

  bool Put(const Identity& owner, uint64_t bytes, const std::string& value) {
    if (!lru_.MakeRoom(owner, bytes, kLimit)) return false;
    last_ = lru_.Add(owner, bytes, value);
    return true;
  }

  std::vector<std::string> dropped_;
  FairLru<std::string> lru_{[this](std::string& value) { dropped_.push_back(value); }};
  FairLru<std::string>::Place last_;
};

TEST_F(FairLruTest, OneClientAloneHasAllTheRoomAndLosesWhatItUsedLongAgo) {
  EXPECT_TRUE(Put(kOne, 5, "a"));
  const auto a = last_;
  EXPECT_TRUE(Put(kOne, 5, "b"));
  lru_.Touch(a);
  EXPECT_TRUE(Put(kOne, 5, "c"));
  EXPECT_THAT(dropped_, ElementsAre("b"));
  EXPECT_EQ(lru_.bytes(), 10U);
}

TEST_F(FairLruTest, WhoHasMostMakesRoom) {
  EXPECT_TRUE(Put(kOne, 2, "one"));  // the oldest
  for (const char* value : {"a", "b", "c", "d"}) EXPECT_TRUE(Put(kTwo, 2, value));
  EXPECT_TRUE(Put(kThree, 2, "three"));
  EXPECT_THAT(dropped_, ElementsAre("a"));
  for (const char* value : {"e", "f", "g", "h", "i"}) EXPECT_TRUE(Put(kTwo, 2, value));
  EXPECT_THAT(dropped_, ElementsAre("a", "b", "c", "d", "e", "f"));  // its own alone
}

// By hand: one has 8 and two has 2. Of three things of three, each of 1, the first takes one of 4
// from one, which then has 4.
TEST_F(FairLruTest, NoMoreGoesThanIsAskedFor) {
  for (const char* value : {"a", "b"}) EXPECT_TRUE(Put(kOne, 4, value));
  EXPECT_TRUE(Put(kTwo, 2, "two"));
  for (const char* value : {"c", "d", "e"}) EXPECT_TRUE(Put(kThree, 1, value));
  EXPECT_THAT(dropped_, ElementsAre("a"));
  EXPECT_EQ(lru_.bytes(), 9U);
}

TEST_F(FairLruTest, NobodyLosesToWhoWouldHaveMore) {
  EXPECT_TRUE(Put(kOne, 5, "one"));
  EXPECT_TRUE(Put(kTwo, 5, "two"));
  EXPECT_FALSE(Put(kThree, 5, "three"));
  EXPECT_FALSE(Put(kOne, 6, "larger"));  // than all that is its own
  EXPECT_THAT(dropped_, IsEmpty());
  EXPECT_TRUE(Put(kOne, 5, "one again"));
  EXPECT_THAT(dropped_, ElementsAre("one"));
}

TEST_F(FairLruTest, WhatIsOldGoesWhoeverHasIt) {
  EXPECT_TRUE(Put(kOne, 1, "old"));
  EXPECT_TRUE(Put(kOne, 1, "new"));
  EXPECT_TRUE(Put(kTwo, 1, "old"));
  lru_.DropOld([](const std::string& value) { return value == "old"; });
  EXPECT_THAT(dropped_, ElementsAre("old", "old"));
  EXPECT_EQ(lru_.bytes(), 1U);
  lru_.Drop(lru_.Add(kThree, 4, "three"));
  EXPECT_EQ(lru_.bytes(), 1U);
}

}  // namespace
}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
#include "base/memory_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace inflight {
namespace {

using testing::HasSubstr;

constexpr size_t kMib = size_t{1} << 20;

// Hard 100 MiB, soft 80, a client 75, a connection 50.
class MemoryAccountTest : public testing::Test {
 protected:
  std::shared_ptr<AccountShare> Connection(const std::string& client) {
    auto ended = std::make_shared<bool>(false);
    ends_.push_back(ended);
    return account_->NewConnection(client, [ended] { *ended = true; });
  }
  static MemoryCharge Charge(const std::shared_ptr<AccountShare>& share, size_t bytes) {
    MemoryCharge charge(share);
    EXPECT_TRUE(charge.Resize(bytes).ok());
    return charge;
  }

  std::shared_ptr<MemoryAccount> account_ = MemoryAccount::Make(MemoryLimits::Of(100 * kMib));
  std::vector<std::shared_ptr<bool>> ends_;
};

TEST_F(MemoryAccountTest, ScopeReturnsWhatWasCharged) {
  const auto share = Connection("a");
  {
    MemoryCharge charge = Charge(share, 10 * kMib);
    EXPECT_EQ(account_->used_bytes(), 10 * kMib);
    MemoryCharge moved = std::move(charge);
    ASSERT_TRUE(moved.Resize(4 * kMib).ok());
    EXPECT_EQ(account_->used_bytes(), 4 * kMib);
    EXPECT_EQ(share->used_bytes(), 4 * kMib);
  }
  EXPECT_EQ(account_->used_bytes(), 0U);
  EXPECT_EQ(share->used_bytes(), 0U);
}

TEST_F(MemoryAccountTest, AChargeWithoutAShareCountsForNobody) {
  MemoryCharge charge;
  EXPECT_TRUE(charge.Resize(1000 * kMib).ok());
  EXPECT_EQ(account_->used_bytes(), 0U);
}

TEST_F(MemoryAccountTest, ReservingChargesInSteps) {
  MemoryCharge charge(Connection("a"));
  ASSERT_TRUE(charge.Reserve(1).ok());
  EXPECT_EQ(account_->used_bytes(), 16384U);
  ASSERT_TRUE(charge.Reserve(16384).ok());
  EXPECT_EQ(account_->used_bytes(), 16384U);
  ASSERT_TRUE(charge.Reserve(16385).ok());
  EXPECT_EQ(account_->used_bytes(), 32768U);
}

TEST_F(MemoryAccountTest, AConnectionIsRefusedPastItsBoundAndKeepsWhatItHas) {
  const auto share = Connection("a");
  MemoryCharge charge = Charge(share, 50 * kMib);
  const Status status = charge.Resize(50 * kMib + 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.reason(), Reason::kOutOfMemory);
  EXPECT_THAT(status.message(), HasSubstr("this connection"));
  EXPECT_THAT(status.message(), HasSubstr("52428800 bytes"));
  EXPECT_EQ(charge.bytes(), 50 * kMib);
  EXPECT_EQ(account_->used_bytes(), 50 * kMib);
  EXPECT_EQ(account_->num_refused(), 1U);
}

TEST_F(MemoryAccountTest, AClientPastItsShareIsRefusedWhatIsLargeButNotWhatIsSmall) {
  const auto first = Connection("a"), second = Connection("a"), third = Connection("b");
  const MemoryCharge held = Charge(first, 40 * kMib), more = Charge(second, 30 * kMib);
  const auto newcomer = Connection("a");
  MemoryCharge large(newcomer);
  EXPECT_THAT(large.Resize(6 * kMib).message(), HasSubstr("this client"));
  EXPECT_TRUE(large.Resize(kSmallShareBytes).ok());
  EXPECT_TRUE(MemoryCharge(third).Resize(6 * kMib).ok());  // another client's share is its own
}

TEST_F(MemoryAccountTest, PastTheSoftMarkTheLargestThatWaitsIsEndedInFavourOfASmallerOne) {
  const auto idle = Connection("a"), larger = Connection("b"), busy = Connection("c");
  const MemoryCharge of_idle = Charge(idle, 20 * kMib), of_larger = Charge(larger, 25 * kMib),
                     of_busy = Charge(busy, 34 * kMib);
  idle->SetWaiting(true);
  larger->SetWaiting(true);
  MemoryCharge asks(Connection("d"));
  EXPECT_TRUE(asks.Resize(10 * kMib).ok());
  EXPECT_FALSE(*ends_[0]);
  EXPECT_TRUE(*ends_[1]);
  EXPECT_FALSE(*ends_[2]);  // larger, but nobody waits for its client
  EXPECT_EQ(account_->num_ended(), 1U);
  EXPECT_TRUE(asks.Resize(12 * kMib).ok());  // the room that is being made is enough
  EXPECT_EQ(account_->num_ended(), 1U);
}

TEST_F(MemoryAccountTest, PastTheSoftMarkWithNobodyToEndOnlySmallOnesGrow) {
  const auto first = Connection("a"), second = Connection("b");
  const MemoryCharge of_first = Charge(first, 40 * kMib), of_second = Charge(second, 39 * kMib);
  MemoryCharge asks(Connection("c"));
  EXPECT_EQ(asks.Resize(2 * kMib).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(asks.Resize(kSmallShareBytes).ok());
}

TEST_F(MemoryAccountTest, NobodyGrowsPastTheHardMark) {
  std::vector<MemoryCharge> charges;
  int num_refused = 0;
  for (int i = 0; i < 2000; ++i) {
    charges.emplace_back(Connection(std::to_string(i)));
    if (!charges.back().Resize(kSmallShareBytes).ok()) ++num_refused;
  }
  EXPECT_EQ(account_->used_bytes(), 100 * kMib);
  EXPECT_EQ(num_refused, 400);
}

TEST_F(MemoryAccountTest, TheRoomOfAnEndedOneIsCountedOnce) {
  {
    const auto idle = Connection("a");
    const MemoryCharge of_idle = Charge(idle, 30 * kMib),
                       of_busy = Charge(Connection("b"), 45 * kMib);
    idle->SetWaiting(true);
    MemoryCharge asks(Connection("c"));
    ASSERT_TRUE(asks.Resize(10 * kMib).ok());
    ASSERT_TRUE(*ends_[0]);
  }
  EXPECT_EQ(account_->used_bytes(), 0U);
  const MemoryCharge first = Charge(Connection("a"), 40 * kMib),
                     second = Charge(Connection("b"), 39 * kMib);
  EXPECT_FALSE(MemoryCharge(Connection("c")).Resize(2 * kMib).ok());
}

TEST_F(MemoryAccountTest, ThreadsLeaveNothingBehind) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int round = 0; round < 500; ++round) {
        const auto share = account_->NewConnection(std::to_string(i % 2), [] {});
        share->SetWaiting(round % 2 == 0);
        MemoryCharge charge(share);
        for (size_t bytes = kMib; bytes < 40 * kMib; bytes += 10 * kMib) (void)charge.Resize(bytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(account_->used_bytes(), 0U);
}

}  // namespace
}  // namespace inflight

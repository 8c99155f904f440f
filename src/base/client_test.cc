// SPDX-License-Identifier: Apache-2.0
#include "base/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace inflight {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

std::shared_ptr<const Client> With(const ClientLimits& limits) {
  return std::make_shared<Client>(Client{.identity = {1},
                                         .name = "team-a",
                                         .limits = limits,
                                         .use = std::make_shared<ClientUse>(limits, 0)});
}

TEST(Client, NobodyHasNoLimits) {
  EXPECT_TRUE(ClientPlace::Take(nullptr).ok());
  EXPECT_TRUE(ClientTokens::Take(nullptr, int64_t{1} << 60, 0).ok());
  const auto free = With({});
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(free->use->TakeRequest("a", 0).ok());
    EXPECT_TRUE(free->use->Enter("a").ok());
  }
  EXPECT_TRUE(ClientTokens::Take(free, int64_t{1} << 60, 0).ok());
}

TEST(Client, InferencesInProgressAreBounded) {
  const auto client = With({.max_concurrent = 2});
  auto first = ClientPlace::Take(client);
  auto second = ClientPlace::Take(client);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto third = ClientPlace::Take(client);
  EXPECT_EQ(third.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(third.status().reason(), Reason::kOverLimit);
  EXPECT_EQ(third.status().message(),
            "key 'team-a' has 2 requests in progress, of at most max_concurrent = 2; try again "
            "when one of them has ended");
  first->Release();
  first->Release();                             // once
  EXPECT_TRUE(ClientPlace::Take(client).ok());  // and goes at once
  ClientPlace moved = *std::move(second);
  EXPECT_TRUE(ClientPlace::Take(client).ok());
  client->use->Change({.max_concurrent = 1}, 0);
  EXPECT_FALSE(ClientPlace::Take(client).ok());  // what was in progress counts on
  moved = ClientPlace();
  EXPECT_TRUE(ClientPlace::Take(client).ok());
}

TEST(Client, PlacesAreCountedAmongThreads) {
  const auto client = With({.max_concurrent = 3});
  std::vector<std::thread> threads;
  std::atomic<int> num_inside{0};
  std::atomic<int> most{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 2000; ++j) {
        const auto place = ClientPlace::Take(client);
        if (!place.ok()) continue;
        const int inside = ++num_inside;
        for (int seen = most; inside > seen && !most.compare_exchange_weak(seen, inside);) {
        }
        --num_inside;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 1);
  auto places = {ClientPlace::Take(client).ok(), ClientPlace::Take(client).ok()};
  EXPECT_THAT(places, ::testing::Each(true));
}

TEST(Client, TokensOfAPeriodAreBounded) {
  const auto client = With({.tokens_per_period = 100, .period_s = 60});
  auto first = ClientTokens::Take(client, 70, 0);
  ASSERT_TRUE(first.ok());
  const auto refused = ClientTokens::Take(client, 31, 10 * kSecond);
  EXPECT_EQ(refused.status().reason(), Reason::kOverLimit);
  EXPECT_EQ(refused.status().message(),
            "key 'team-a' has 30 tokens left of tokens_per_period = 100, the request may take 31 "
            "(prompt and max_tokens); ask for fewer, or try again in 51 s");
  EXPECT_EQ(refused.status().retry_after_s(), 51);
  EXPECT_EQ(ClientTokens::Take(client, 101, 0).status().retry_after_s(), 0) << "it never may";
  EXPECT_TRUE(ClientTokens::Take(client, 30, 10 * kSecond).ok());  // all given back at its end
  first->Settle(20);
  first->Settle(0);  // once
  auto second = ClientTokens::Take(client, 80, 59 * kSecond);
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(ClientTokens::Take(client, 1, 59 * kSecond).ok());
  // The next period is whole, also for what began before it.
  auto third = ClientTokens::Take(client, 100, 60 * kSecond);
  ASSERT_TRUE(third.ok());
  second->Settle(1);
  EXPECT_FALSE(ClientTokens::Take(client, 1, 119 * kSecond).ok());
  EXPECT_TRUE(ClientTokens::Take(client, 100, 600 * kSecond).ok());
}

TEST(Client, MoreThanWasTakenIsNotCounted) {
  const auto client = With({.tokens_per_period = 10, .period_s = 1});
  auto tokens = ClientTokens::Take(client, 10, 0);
  ASSERT_TRUE(tokens.ok());
  tokens->Settle(12);
  EXPECT_FALSE(ClientTokens::Take(client, 1, 0).ok());
}

TEST(Client, ChangedLimitsLeaveWhatWasTaken) {
  const auto client = With({.tokens_per_period = 100, .period_s = 60});
  auto taken = ClientTokens::Take(client, 90, 0);
  ASSERT_TRUE(taken.ok());
  client->use->Change({.tokens_per_period = 95, .period_s = 60}, kSecond);
  EXPECT_FALSE(ClientTokens::Take(client, 6, kSecond).ok());
  auto more = ClientTokens::Take(client, 5, kSecond);
  EXPECT_TRUE(more.ok());
  client->use->Change({}, kSecond);
  EXPECT_TRUE(ClientTokens::Take(client, 1000, kSecond).ok());
}

}  // namespace
}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/rate_limiter.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Message>
Message FromText(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

std::shared_ptr<RateLimiter> Limiter(const std::vector<std::string>& settings = {}) {
  return *RateLimiter::Make(settings);
}

std::unique_ptr<RateLimiter::Instance> Wants(RateLimiter& limiter, const std::string& text) {
  return limiter.Register(FromText<::inference::ModelRateLimiter>(text));
}

// Whether so many wait; those that do not have got their resources.
bool Waits(const RateLimiter& limiter, int count, const std::future<bool>& newest) {
  const auto is_ready = [&] {
    return newest.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  while (limiter.num_waiting() < count && !is_ready()) std::this_thread::yield();
  return limiter.num_waiting() == count && !is_ready();
}

constexpr char kOneR[] = "resources { name: 'R' count: 1 }";

// Acquires on a thread of its own; says so in `order`.
class Waiter {
 public:
  Waiter(RateLimiter::Instance& instance, std::string name, std::vector<std::string>& order,
         std::mutex& mutex)
      : got_(std::async(std::launch::async, [&instance, name, &order, &mutex] {
          const bool got = instance.Acquire();
          if (!got) return false;
          {
            const std::lock_guard lock(mutex);
            order.push_back(name);
          }
          instance.Release(/*has_executed=*/true);
          return true;
        })) {}
  bool got() { return got_.get(); }

 private:
  std::future<bool> got_;
};

TEST(RateLimiter, ThereIsAsMuchAsTheMostThatOneAsksFor) {
  const auto limiter = Limiter();
  const auto two = Wants(*limiter, "resources { name: 'R' count: 2 }");
  const auto first = Wants(*limiter, kOneR);
  const auto second = Wants(*limiter, kOneR);
  EXPECT_TRUE(first->Acquire());
  EXPECT_TRUE(second->Acquire());  // beside it
  auto waits = std::async(std::launch::async, [&] { return two->Acquire(); });
  EXPECT_TRUE(Waits(*limiter, 1, waits));
  first->Release(true);
  EXPECT_TRUE(Waits(*limiter, 1, waits));
  second->Release(true);
  EXPECT_TRUE(waits.get());
}

TEST(RateLimiter, AResourceThatTheServerCountsIsSharedByThatMany) {
  const auto limiter = Limiter({"R:2"});
  const auto first = Wants(*limiter, kOneR);
  const auto second = Wants(*limiter, kOneR);
  const auto third = Wants(*limiter, kOneR);
  EXPECT_TRUE(first->Acquire());
  EXPECT_TRUE(second->Acquire());
  auto waits = std::async(std::launch::async, [&] { return third->Acquire(); });
  EXPECT_TRUE(Waits(*limiter, 1, waits));
  first->Release(true);
  EXPECT_TRUE(waits.get());
}

// Runs so often before; then waits with priority 1 and 3 beside one that never ran.
TEST(RateLimiter, TheLeastExecutionsTimesPriorityComesFirst) {
  const auto limiter = Limiter();
  const auto holder = Wants(*limiter, kOneR);
  const auto often = Wants(*limiter, std::string(kOneR) + " priority: 1");   // 2 executions: 2
  const auto heavy = Wants(*limiter, std::string(kOneR) + " priority: 3");   // 1 execution: 3
  const auto fresh = Wants(*limiter, std::string(kOneR) + " priority: 10");  // none: 0
  for (RateLimiter::Instance* instance : {often.get(), often.get(), heavy.get()}) {
    ASSERT_TRUE(instance->Acquire());
    instance->Release(true);
  }
  ASSERT_TRUE(holder->Acquire());
  std::vector<std::string> order;
  std::mutex mutex;
  Waiter heavy_waits(*heavy, "heavy", order, mutex);
  Waiter often_waits(*often, "often", order, mutex);
  Waiter fresh_waits(*fresh, "fresh", order, mutex);
  while (limiter->num_waiting() < 3) std::this_thread::yield();
  holder->Release(true);
  EXPECT_TRUE(heavy_waits.got() && often_waits.got() && fresh_waits.got());
  EXPECT_THAT(order, ElementsAre("fresh", "often", "heavy"));
}

TEST(RateLimiter, WhoWantsNothingOfWhatTheFirstWaitsForGoesOn) {
  const auto limiter = Limiter({"R:1", "S:2"});
  const auto holder = Wants(*limiter, kOneR);
  const auto both =
      Wants(*limiter, "resources { name: 'R' count: 1 } resources { name: 'S' count: 1 }");
  const auto other = Wants(*limiter, "resources { name: 'T' count: 1 }");
  const auto late = Wants(*limiter, "resources { name: 'S' count: 1 } priority: 2");
  ASSERT_TRUE(late->Acquire());
  late->Release(true);  // so that it stands behind `both`
  ASSERT_TRUE(holder->Acquire());
  auto both_waits = std::async(std::launch::async, [&] { return both->Acquire(); });
  while (limiter->num_waiting() < 1) std::this_thread::yield();
  EXPECT_TRUE(other->Acquire());
  // There is an S left, but `both` would wait the longer.
  auto late_waits = std::async(std::launch::async, [&] { return late->Acquire(); });
  EXPECT_TRUE(Waits(*limiter, 2, late_waits));
  holder->Release(true);
  EXPECT_TRUE(both_waits.get());
  EXPECT_TRUE(late_waits.get());
}

TEST(RateLimiter, WhoIsClosedOrGoesGivesBackWhatItHas) {
  const auto limiter = Limiter();
  auto holder = Wants(*limiter, kOneR);
  const auto waits = Wants(*limiter, kOneR);
  const auto closed = Wants(*limiter, kOneR);
  ASSERT_TRUE(holder->Acquire());
  auto ends = std::async(std::launch::async, [&] { return closed->Acquire(); });
  while (limiter->num_waiting() < 1) std::this_thread::yield();
  closed->Close();
  EXPECT_FALSE(ends.get());
  EXPECT_FALSE(closed->Acquire());
  auto goes_on = std::async(std::launch::async, [&] { return waits->Acquire(); });
  holder = nullptr;
  EXPECT_TRUE(goes_on.get());
}

TEST(RateLimiter, WhoStoodBehindOneThatIsClosedGoesOn) {
  const auto limiter = Limiter({"R:1", "S:1"});
  const auto holder = Wants(*limiter, kOneR);
  const auto both =
      Wants(*limiter, "resources { name: 'R' count: 1 } resources { name: 'S' count: 1 }");
  const auto behind = Wants(*limiter, "resources { name: 'S' count: 1 }");
  ASSERT_TRUE(behind->Acquire());
  behind->Release(true);
  ASSERT_TRUE(holder->Acquire());
  auto both_waits = std::async(std::launch::async, [&] { return both->Acquire(); });
  EXPECT_TRUE(Waits(*limiter, 1, both_waits));
  auto behind_waits = std::async(std::launch::async, [&] { return behind->Acquire(); });
  EXPECT_TRUE(Waits(*limiter, 2, behind_waits));
  both->Close();
  EXPECT_FALSE(both_waits.get());
  EXPECT_TRUE(behind_waits.get());
}

TEST(RateLimiter, AModelThatCouldNeverRunIsRefused) {
  const auto config = FromText<::inference::ModelConfig>(
      "name: 'm' instance_group { name: 'g' rate_limiter { resources { name: 'R' count: 3 } } }");
  EXPECT_TRUE(Limiter()->Check(config).ok());
  EXPECT_TRUE(Limiter({"R:3"})->Check(config).ok());
  const Status refused = Limiter({"R:2"})->Check(config);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("group 'g' of model 'm' asks for 3 of resource 'R', "
                                           "there are 2: raise --rate-limit-resource R:3"));
}

TEST(RateLimiter, SettingsHaveAFormAndAreGivenOnce) {
  EXPECT_TRUE(RateLimiter::Make(std::vector<std::string>{"R:1:0", "S:4294967295"}).ok());
  for (const char* setting : {"R", ":1", "R:0", "R:-1", "R:1x", "R::0", "R:1:", "R:4294967296"}) {
    const auto made = RateLimiter::Make(std::vector<std::string>{setting});
    EXPECT_THAT(made.status().message(), HasSubstr(std::string("got '") + setting + "'"));
  }
  EXPECT_THAT(RateLimiter::Make(std::vector<std::string>{"R:1:1"}).status().message(),
              HasSubstr("leave the device out"));
  EXPECT_THAT(RateLimiter::Make(std::vector<std::string>{"R:1", "R:2:0"}).status().message(),
              HasSubstr("'R' is given twice"));
}

}  // namespace
}  // namespace inflight::serving

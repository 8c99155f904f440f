// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/request_queue.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;

::inference::ModelConfig Config(const std::string& batching, const std::string& more = "") {
  ::inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      more + " dynamic_batching { " + batching + " }", &config));
  return config;
}

class RequestQueueTest : public ::testing::Test {
 protected:
  RequestQueue& Make(const std::string& batching, const std::string& more = "") {
    queue_ = std::make_unique<RequestQueue>(
        Config(batching, more), clock_,
        [this](QueuedRequest item) { expired_.push_back(item.request.id); });
    return *queue_;
  }
  Status Add(const std::string& id, uint64_t priority = 0, uint64_t timeout_us = 0) {
    QueuedRequest item;
    item.request.id = id;
    item.request.priority = priority;
    item.request.timeout_us = timeout_us;
    return queue_->Add(item);
  }
  // What is left, in the order in which it leaves.
  std::vector<std::string> TakeAll() {
    queue_->Close();
    std::vector<std::string> ids;
    for (auto batch = queue_->Take(); !batch.empty(); batch = queue_->Take()) {
      for (const QueuedRequest& item : batch) ids.push_back(item.request.id);
    }
    return ids;
  }

  ManualClock clock_;
  std::unique_ptr<RequestQueue> queue_;
  std::vector<std::string> expired_;
};

TEST_F(RequestQueueTest, OneLevelIsFirstInFirstOut) {
  Make("");
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(Add(id).ok());
  EXPECT_THAT(TakeAll(), ElementsAre("a", "b", "c"));
}

TEST_F(RequestQueueTest, LowerLevelsFirstAndUnknownOnesAreTheDefault) {
  Make("priority_levels: 3 default_priority_level: 2");
  EXPECT_TRUE(Add("third", 3).ok());
  EXPECT_TRUE(Add("unset", 0).ok());
  EXPECT_TRUE(Add("beyond", 9).ok());
  EXPECT_TRUE(Add("first", 1).ok());
  EXPECT_THAT(TakeAll(), ElementsAre("first", "unset", "beyond", "third"));
}

TEST_F(RequestQueueTest, ADefaultLevelBeyondTheLastIsTheLast) {
  Make("default_priority_level: 2");
  EXPECT_TRUE(Add("a").ok());
  EXPECT_TRUE(Add("b", 2).ok());
  EXPECT_THAT(TakeAll(), ElementsAre("a", "b"));
}

TEST_F(RequestQueueTest, AFullLevelRefusesAndTheOthersDoNot) {
  Make("priority_levels: 2 default_priority_level: 1 default_queue_policy { max_queue_size: 1 }");
  EXPECT_TRUE(Add("a", 1).ok());
  const Status full = Add("b", 1);
  EXPECT_EQ(full.code(), StatusCode::kUnavailable);
  EXPECT_EQ(full.message(), "Exceeds maximum queue size");
  EXPECT_TRUE(Add("c", 2).ok());
  EXPECT_THAT(TakeAll(), ElementsAre("a", "c"));
}

TEST_F(RequestQueueTest, RejectedRequestsLeaveThroughTheCallback) {
  Make("default_queue_policy { default_timeout_microseconds: 1000 }");
  EXPECT_TRUE(Add("old").ok());
  clock_.AdvanceNs(600'000);
  EXPECT_TRUE(Add("young").ok());
  clock_.AdvanceNs(400'000);
  EXPECT_THAT(TakeAll(), ElementsAre("young"));
  EXPECT_THAT(expired_, ElementsAre("old"));
}

TEST_F(RequestQueueTest, DelayedRequestsGoBehindThoseInTime) {
  Make("default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000 }");
  EXPECT_TRUE(Add("old").ok());
  clock_.AdvanceNs(1'000'000);
  EXPECT_TRUE(Add("young").ok());
  EXPECT_THAT(TakeAll(), ElementsAre("young", "old"));
  EXPECT_TRUE(expired_.empty());
}

TEST_F(RequestQueueTest, ARequestMayOnlyShortenItsTime) {
  Make("default_queue_policy { default_timeout_microseconds: 1000 allow_timeout_override: true }");
  EXPECT_TRUE(Add("short", 0, 100).ok());
  EXPECT_TRUE(Add("long", 0, 5000).ok());
  clock_.AdvanceNs(100'000);
  EXPECT_TRUE(Add("next").ok());
  EXPECT_THAT(expired_, ElementsAre("short"));
  clock_.AdvanceNs(900'000);
  EXPECT_TRUE(Add("last").ok());
  EXPECT_THAT(expired_, ElementsAre("short", "long"));
}

TEST_F(RequestQueueTest, WithoutTheOverrideItsOwnTimeCountsForNothing) {
  Make("default_queue_policy { default_timeout_microseconds: 1000 }");
  EXPECT_TRUE(Add("a", 0, 100).ok());
  clock_.AdvanceNs(500'000);
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
}

TEST_F(RequestQueueTest, AClosedQueueRefuses) {
  Make("").Close();
  EXPECT_EQ(Add("a").code(), StatusCode::kUnavailable);
  EXPECT_TRUE(queue_->Take().empty());
}

TEST_F(RequestQueueTest, AThreadThatIsToLeaveTakesNothingMore) {
  Make("");
  RequestQueue::Taker leaving;
  auto taken = std::async(std::launch::async, [&] { return queue_->Take(&leaving).size(); });
  queue_->Leave(leaving);
  EXPECT_EQ(taken.get(), 0U);
  EXPECT_TRUE(Add("a").ok());
  EXPECT_TRUE(queue_->Take(&leaving).empty());
  EXPECT_FALSE(queue_->WaitForBatch(&leaving));
  EXPECT_EQ(queue_->Take().front().request.id, "a");
}

TEST_F(RequestQueueTest, ABatchLeavesWholeAndWhatFollowsStays) {
  Make("", "max_batch_size: 2");
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(Add(id).ok());
  EXPECT_EQ(queue_->Take().size(), 2U);
  EXPECT_THAT(TakeAll(), ElementsAre("c"));
}

// One thread waits for more requests to come, and takes them with what it has.
TEST_F(RequestQueueTest, ABatchWaitsForMoreUntilItIsFull) {
  Make("max_queue_delay_microseconds: 3600000000", "max_batch_size: 2");
  auto taken = std::async(std::launch::async, [&] { return queue_->Take().size(); });
  EXPECT_TRUE(Add("a").ok());
  EXPECT_TRUE(Add("b").ok());
  EXPECT_EQ(taken.get(), 2U);
}

TEST_F(RequestQueueTest, WhatWaitsForMoreIsNotTaken) {
  Make("max_queue_delay_microseconds: 100", "max_batch_size: 2");
  EXPECT_TRUE(Add("a").ok());
  EXPECT_TRUE(queue_->TryTake().empty());
  clock_.AdvanceNs(100'000);
  EXPECT_EQ(queue_->TryTake().size(), 1U);
}

TEST_F(RequestQueueTest, ABatchThatWaitsLeavesWhenTheQueueIsClosed) {
  Make("max_queue_delay_microseconds: 3600000000", "max_batch_size: 2");
  EXPECT_TRUE(Add("a").ok());
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
}

// Nobody adds or takes any more, as while all instances are busy.
TEST_F(RequestQueueTest, TimeOverIsNoticedWhileNobodyComesOrTakes) {
  std::promise<std::string> expired;
  RequestQueue queue(Config("default_queue_policy { default_timeout_microseconds: 3600000000"
                            "                       allow_timeout_override: true }"),
                     Clock::System(),
                     [&](QueuedRequest item) { expired.set_value(item.request.id); });
  ASSERT_TRUE(queue.rejects_in_time());
  std::thread rejecting([&] { queue.RejectUntilClosed(); });
  QueuedRequest late, soon;
  late.request.id = "late";
  soon.request.id = "soon";
  soon.request.timeout_us = 1000;
  EXPECT_TRUE(queue.Add(late).ok());
  EXPECT_TRUE(queue.Add(soon).ok());  // its deadline is before the one that is waited for
  EXPECT_EQ(expired.get_future().get(), "soon");
  queue.Close();
  rejecting.join();
  EXPECT_EQ(queue.Take().front().request.id, "late");
}

// The head of [1, 2, 2] waits too long: without it the preferred size of 4 is reached, hours before
// the batch would go for its delay.
TEST_F(RequestQueueTest, WhatIsLeftWithoutItsHeadGoesTogether) {
  for (const std::string action : {"REJECT", "DELAY"}) {
    std::atomic<int> num_expired = 0;
    RequestQueue queue(
        Config("preferred_batch_size: [4, 8] max_queue_delay_microseconds: 3600000000 "
               "default_queue_policy { timeout_action: " +
                   action +
                   " allow_timeout_override: true default_timeout_microseconds: 1800000000 }",
               "max_batch_size: 8"),
        Clock::System(), [&](const QueuedRequest&) { ++num_expired; });
    for (const int64_t size : {1, 2, 2}) {
      QueuedRequest item;
      item.request.id = std::to_string(size);
      item.request.inputs.push_back({.name = "I", .shape = {size, 1}});
      if (size == 1) item.request.timeout_us = 20'000;
      EXPECT_TRUE(queue.Add(item).ok());
    }
    const std::vector<QueuedRequest> batch = queue.Take();
    ASSERT_EQ(batch.size(), 2U) << action;
    EXPECT_EQ(batch.front().request.id, "2");
    EXPECT_EQ(num_expired, action == "REJECT" ? 1 : 0);
    queue.Close();
  }
}

TEST_F(RequestQueueTest, ThereAreAsManyLevelsAsANumberHas) {
  Make("priority_levels: 18446744073709551615 default_priority_level: 4294967296");
  EXPECT_TRUE(Add("last", 18446744073709551615U).ok());
  EXPECT_TRUE(Add("default").ok());
  EXPECT_TRUE(Add("first", 1).ok());
  EXPECT_TRUE(Add("large", 5'000'000'000).ok());
  EXPECT_THAT(TakeAll(), ElementsAre("first", "default", "large", "last"));
}

TEST_F(RequestQueueTest, OnlyPoliciesThatRejectNeedToBeWatched) {
  EXPECT_FALSE(Make("").rejects_in_time());
  EXPECT_FALSE(Make("default_queue_policy { timeout_action: DELAY "
                    "default_timeout_microseconds: 1000 }")
                   .rejects_in_time());
  EXPECT_TRUE(Make("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 "
                   "value { default_timeout_microseconds: 1000 } }")
                  .rejects_in_time());
}

}  // namespace
}  // namespace inflight::serving

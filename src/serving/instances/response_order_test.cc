// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/response_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;

class ResponseOrderTest : public ::testing::Test {
 protected:
  ResponseHandler Ordered() {
    return order_->InOrder([this](Response response) { got_.push_back(response.id); });
  }
  static Response Named(std::string id, bool is_final = true) {
    return {.id = std::move(id), .is_final = is_final};
  }

  std::shared_ptr<ResponseOrder> order_ = std::make_shared<ResponseOrder>();
  std::vector<std::string> got_;
};

TEST_F(ResponseOrderTest, ResponsesWaitForThoseOfEarlierRequests) {
  const auto a = Ordered(), b = Ordered(), c = Ordered();
  c(Named("c"));
  b(Named("b"));
  EXPECT_TRUE(got_.empty());
  a(Named("a"));
  EXPECT_THAT(got_, ElementsAre("a", "b", "c"));
}

TEST_F(ResponseOrderTest, TheFirstRequestStreamsAndTheSecondFollowsItsEnd) {
  const auto a = Ordered(), b = Ordered();
  a(Named("a1", false));
  b(Named("b1", false));
  EXPECT_THAT(got_, ElementsAre("a1"));
  a(Named("a2"));
  EXPECT_THAT(got_, ElementsAre("a1", "a2", "b1"));
  b(Named("b2"));
  EXPECT_THAT(got_, ElementsAre("a1", "a2", "b1", "b2"));
}

TEST_F(ResponseOrderTest, WhatIsRefusedHasNoPlace) {
  const auto a = Ordered(), b = Ordered();
  Response refused = Named("b");
  refused.rejected = true;
  b(refused);
  EXPECT_THAT(got_, ElementsAre("b"));
  a(Named("a"));
  EXPECT_THAT(got_, ElementsAre("b", "a"));
}

// Handlers run one at a time: got_ has no lock of its own.
TEST_F(ResponseOrderTest, ThreadsGiveOutWhatEachOtherBring) {
  constexpr int kCount = 200;
  std::vector<ResponseHandler> handlers;
  std::vector<std::string> expected;
  for (int i = 0; i < kCount; ++i) {
    handlers.push_back(Ordered());
    expected.push_back(std::to_string(i));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kCount; i += 4)
        handlers[static_cast<size_t>(i)](Named(expected[static_cast<size_t>(i)]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got_, expected);
}

}  // namespace
}  // namespace inflight::serving

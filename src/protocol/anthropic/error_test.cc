// SPDX-License-Identifier: Apache-2.0
#include "protocol/anthropic/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace inflight::anthropic {
namespace {

using ::testing::HasSubstr;

TEST(AnthropicError, ATimeThatRanOutIsNoOverload) {
  const auto late = Error(DeadlineExceeded("Request timeout expired"));
  EXPECT_EQ(late.status, 504);
  EXPECT_THAT(late.body, HasSubstr(R"("type":"timeout_error")"));
  const auto full = Error(Unavailable("the queue is full"));
  EXPECT_EQ(full.status, 529);
  EXPECT_THAT(full.body, HasSubstr(R"("type":"overloaded_error")"));
}

TEST(AnthropicError, AnEventOfAStreamHasTheSameType) {
  std::string event;
  AppendError(DeadlineExceeded("Request timeout expired"), event);
  EXPECT_THAT(event, HasSubstr(R"("type":"timeout_error")"));
}

}  // namespace
}  // namespace inflight::anthropic

// SPDX-License-Identifier: Apache-2.0
#include "bench/load/http_answer.h"

#include <gtest/gtest.h>

#include <string_view>

namespace inflight::bench {
namespace {

using State = HttpAnswer::State;

constexpr std::string_view kWhole = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
constexpr std::string_view kChunked =
    "HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";

TEST(HttpAnswerTest, IsCompleteWithItsLastByteInPiecesOfAnySize) {
  for (const std::string_view bytes : {kWhole, kChunked}) {
    HttpAnswer answer;
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
      ASSERT_EQ(answer.Feed(bytes.substr(i, 1)), State::kPartial) << bytes.substr(0, i + 1);
    }
    EXPECT_EQ(answer.Feed(bytes.substr(bytes.size() - 1)), State::kComplete);
    EXPECT_EQ(answer.body(), "abc");
    EXPECT_EQ(answer.rest(), "");
    EXPECT_EQ(answer.status(), bytes == kWhole ? 200 : 503);
    EXPECT_EQ(answer.keeps_connection(), bytes == kWhole);
  }
}

TEST(HttpAnswerTest, LeavesWhatFollows) {
  for (const std::string_view bytes : {kWhole, kChunked}) {
    HttpAnswer answer;
    EXPECT_EQ(answer.Feed(std::string(bytes) + "HTTP"), State::kComplete);
    EXPECT_EQ(answer.rest(), "HTTP");
  }
}

}  // namespace
}  // namespace inflight::bench

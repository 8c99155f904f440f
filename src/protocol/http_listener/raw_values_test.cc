// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/raw_values.h"

#include <gtest/gtest.h>

#include "protocol/http_listener/listener_fixture.h"

namespace inflight::http_listener {
namespace {

using Values = std::vector<std::string>;

TEST(RawValues, KeepBlanksBehindThem) {
  const std::string head =
      "GET / HTTP/1.1\r\nHost: x\r\nA: v  \r\nB:  v\t\r\nC:  v  w \r\nD:\r\nE:   \r\nF:v\r\n\r\n";
  const Headers headers = {{"Host", "x"}, {"A", "v"}, {"B", "v"}, {"C", "v  w"},
                           {"D", ""},     {"E", ""},  {"F", "v"}};
  EXPECT_EQ(RawValues(head, headers), (Values{"x", "v  ", "v\t", "v  w ", " ", " ", "v"}));
}

TEST(RawValues, AreThoseOfTheirFieldWhateverTheOrder) {
  const std::string head = "GET / HTTP/1.1\r\nA: 1 \r\nB: 2  \r\na: 3   \r\n\r\n";
  const Headers grouped = {{"A", "1"}, {"a", "3"}, {"B", "2"}};
  EXPECT_EQ(RawValues(head, grouped), (Values{"1 ", "3   ", "2  "}));
}

TEST(RawValues, OfAFoldedFieldAreAsItWasRead) {
  const std::string head = "GET / HTTP/1.1\r\nA: 1 \r\n 2 \r\nB: 3 \r\n\r\nA: body \r\n";
  EXPECT_EQ(RawValues(head, {{"A", "1 2"}, {"B", "3"}, {"C", "4"}}), (Values{"1 2", "3 ", "4"}));
}

using RawValuesOfListenerTest = HttpListenerTest;

TEST_F(RawValuesOfListenerTest, AreKeptWhereTheyAreAskedFor) {
  const std::string request = "GET /raw HTTP/1.1\r\nHost: x\r\nA: v  \r\n\r\n";
  for (const bool keeps : {false, true}) {
    Start({.keeps_raw_values = keeps});
    for (const size_t cut : {request.size(), size_t{20}}) {  // also in two pieces
      TestClient client(port());
      client.Send(request.substr(0, cut));
      client.Send(request.substr(cut));
      EXPECT_EQ(client.Receive().body, keeps ? "x|v  |" : "");
    }
    listener_.reset();
  }
}

}  // namespace
}  // namespace inflight::http_listener

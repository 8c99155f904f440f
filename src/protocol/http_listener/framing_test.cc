// SPDX-License-Identifier: Apache-2.0
// Requests whose end two readers could see elsewhere, over real sockets.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "protocol/http_listener/listener_fixture.h"

namespace inflight::http_listener {
namespace {

using FramingTest = HttpListenerTest;

// What a proxy could take for the body of this request, and we for the next one, is not answered.
TEST_F(FramingTest, ABodyOfUncertainLengthIsRefusedAndTheConnectionClosed) {
  Start();
  const std::string next = Get("/smuggled");
  const std::string chunks = "0\r\n\r\n";
  const std::tuple<std::string, int, std::string> cases[] = {
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n" + next, 400, "'gzip', must end"},
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n" + next, 400, "must end"},
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n" + next, 400, "must end"},
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, x\r\n\r\n" + next, 400, "must end"},
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n" + next, 400, "must end"},
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + chunks, 501, "alone"},
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" +
           chunks,
       501, "'gzip, chunked', chunked alone"},
      {"HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\nContent-Length: 3\r\n\r\nabc", 400,
       "Content-Length besides"},
      {"HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
       400, ""},
      {"HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, ""},
      {"HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400,
       "Content-Length: got '3, 3', a request has one"},
      {"HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc", 400, "got '3, 3'"},
      {"HTTP/1.1\r\nHost: x\r\n Content-Length: 3\r\n\r\nabc", 400, "Host: a name has no white"},
      {"HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, 400, "send Content-Length"},
      {"HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400, "Host: got 0"},
      {"HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 3\r\n\r\nabc", 400, "Host: got 2"},
  };
  for (const auto& [rest, status, reason] : cases) {
    TestClient client(port());
    client.Send("POST /echo " + rest);
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, status) << rest << response.body;
    EXPECT_NE(response.body.find(reason), std::string::npos) << rest << response.body;
    EXPECT_EQ(response.Header("Connection"), "close") << rest;
    EXPECT_EQ(client.Receive().status, 0) << rest;  // nothing is made of what follows
  }
}

TEST_F(FramingTest, WhatFramesChunksIsBounded) {
  Start({.max_header_bytes = 500});
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string megabytes(4 << 20, '0');
  for (const std::string& part :
       {megabytes, "3;" + megabytes, "3\r\nabc\r\n0\r\nX: " + megabytes}) {
    TestClient client(port());
    client.Send(head + part);
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, 400) << part.substr(0, 20);
    EXPECT_NE(response.body.find("exceed the maximum of 70132 bytes"), std::string::npos)
        << response.body;
  }
}

}  // namespace
}  // namespace inflight::http_listener

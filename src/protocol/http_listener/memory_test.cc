// SPDX-License-Identifier: Apache-2.0
// What connections hold is charged to the account, and one that holds much gives way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/http_listener/listener_fixture.h"
#include "protocol/http_listener/test_client.h"

namespace inflight::http_listener {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr size_t kMib = size_t{1} << 20;

class ListenerMemoryTest : public HttpListenerTest {
 protected:
  void StartWith(size_t bytes, ListenerOptions options = {}) {
    handler_.max_body_bytes = 64 * kMib;
    memory_ = MemoryAccount::Make(MemoryLimits::Of(bytes));
    options.memory = memory_;
    Start(options);
  }
  void WaitUntilUsed(bool (*is_good)(size_t used)) {
    for (int i = 0; i < 10'000 && !is_good(memory_->used_bytes()); ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(is_good(memory_->used_bytes())) << memory_->used_bytes();
  }
  static std::string Head(size_t length) {
    return "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(length) +
           "\r\n\r\n";
  }

  std::shared_ptr<MemoryAccount> memory_;
};

TEST_F(ListenerMemoryTest, WhatIsReceivedIsChargedAndReturned) {
  StartWith(64 * kMib);
  TestClient client(port());
  client.Send(Head(4 * kMib) + std::string(3 * kMib, 'x'));
  WaitUntilUsed([](size_t used) { return used >= 3 * kMib && used <= 4 * kMib + 16384; });
  client.Close();
  WaitUntilUsed([](size_t used) { return used == 0; });
}

TEST_F(ListenerMemoryTest, ABodyThatHasNoRoomIsAnswered503) {
  StartWith(4 * kMib);
  TestClient client(port());
  client.Send(Head(8 * kMib) + std::string(3 * kMib, 'x'));
  const TestResponse response = client.Receive();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body,
              HasSubstr("this connection would take more than the limit of 2097152 bytes"));
  EXPECT_TRUE(client.IsClosedByServer());
  WaitUntilUsed([](size_t used) { return used == 0; });
  EXPECT_EQ(RoundTrip(port(), Post("/echo", "small")).body, "POST small");
}

TEST_F(ListenerMemoryTest, ALongHeadIsChargedAsItComes) {
  StartWith(64 * kMib);
  TestClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX: " +
              std::string(50'000, 'x'));
  WaitUntilUsed([](size_t used) { return used >= 50'000 && used <= 2 * 65536; });
  client.Send("\r\n\r\n12");
  WaitUntilUsed([](size_t used) { return used >= 150'000 && used <= 4 * 65536; });
  client.Send("345");
  EXPECT_EQ(client.Receive().body, "POST 12345");
  WaitUntilUsed([](size_t used) { return used == 0; });  // of an idle connection
  EXPECT_EQ(client.Ask(Post("/echo", "on")).body, "POST on");
}

TEST_F(ListenerMemoryTest, AHeadThatHasNoRoomIsAnswered503) {
  StartWith(64 * 1024);
  TestClient client(port());
  client.Send("GET / HTTP/1.1\r\nX: " + std::string(40'000, 'x'));
  const TestResponse response = client.Receive();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body,
              HasSubstr("this connection would take more than the limit of 32768 bytes"));
  EXPECT_TRUE(client.IsClosedByServer());
  WaitUntilUsed([](size_t used) { return used == 0; });
  EXPECT_EQ(RoundTrip(port(), Post("/echo", "small")).body, "POST small");
}

TEST_F(ListenerMemoryTest, WhatIsReadAheadIsCharged) {
  StartWith(64 * kMib);
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  client.Send(Post("/length", std::string(50'000, 'x')));
  WaitUntilUsed([](size_t used) { return used >= 50'000; });
  responder->Send({.body = "first"});
  EXPECT_EQ(client.Receive().body, "first");
  EXPECT_EQ(client.Receive().body, "50000");
  WaitUntilUsed([](size_t used) { return used == 0; });
}

// Half of it is what a connection may have: the rest waits in the socket.
TEST_F(ListenerMemoryTest, WhatHasNoRoomIsReadAfterTheAnswer) {
  StartWith(112 * 1024);
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += Post("/echo", std::to_string(i));
  client.Send(many);
  responder->Send({.body = "first"});
  EXPECT_EQ(client.Receive().body, "first");
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.Receive().body, "POST " + std::to_string(i));
  WaitUntilUsed([](size_t used) { return used == 0; });
}

TEST_F(ListenerMemoryTest, TrailersAreChargedBeforeTheyCome) {
  StartWith(64 * kMib);
  TestClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " +
              std::string(60'000, 'x'));
  WaitUntilUsed([](size_t used) { return used >= 2 * 60'000; });
  client.Send("\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 200);
  WaitUntilUsed([](size_t used) { return used == 0; });
}

TEST_F(ListenerMemoryTest, TheLargestWaitingUploadGivesWay) {
  StartWith(16 * kMib);
  TestClient larger(port()), smaller(port());
  larger.Send(Head(7 * kMib) + std::string(6 * kMib, 'x'));
  WaitUntilUsed([](size_t used) { return used >= 6 * kMib; });
  smaller.Send(Head(5 * kMib) + std::string(3 * kMib, 'x'));
  WaitUntilUsed([](size_t used) { return used >= 9 * kMib; });
  EXPECT_EQ(RoundTrip(port(), Post("/length", std::string(4 * kMib, 'y'))).body, "4194304");
  EXPECT_TRUE(larger.IsClosedByServer());
  smaller.Send(std::string(2 * kMib, 'x'));
  EXPECT_EQ(smaller.Receive().body, "5242880");
  EXPECT_GE(memory_->num_ended(), 1U);
}

TEST_F(ListenerMemoryTest, AnAnswerThatHasNoRoomIsReplacedBy503) {
  StartWith(4 * kMib);
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  responder->Send({.body = std::string(3 * kMib, 'x')});
  const TestResponse response = client.Receive();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("limit"));
}

TEST_F(ListenerMemoryTest, WhatAStreamsReaderLeavesIsCharged) {
  StartWith(64 * kMib, {.max_stream_buffer_bytes = 32 * kMib});
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  responder->StartStream(200, {});
  const std::string chunk(kMib, 'x');
  for (int i = 0; i < 12; ++i) responder->WriteChunk(chunk);  // the socket takes a part of it
  WaitUntilUsed([](size_t used) { return used >= 2 * kMib; });
  client.Close();
  responder->WriteChunk(chunk);
}

// The time that a body earns by what came does not add up.
TEST_F(ListenerMemoryTest, AnUploadThatStallsLateEndsAsSoonAsOneThatStallsEarly) {
  StartWith(64 * kMib, {.body_timeout = milliseconds(200)});
  TestClient client(port());
  client.Send(Head(20 * kMib) + std::string(19 * kMib, 'x'));  // worth 304 seconds
  EXPECT_TRUE(client.IsClosedByServer());                      // waits for ten
}

}  // namespace
}  // namespace inflight::http_listener

// SPDX-License-Identifier: Apache-2.0
// The listener over real sockets, byte by byte where it matters.
#include "protocol/http_listener/http_listener.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "protocol/http_listener/listener_fixture.h"

namespace inflight::http_listener {
namespace {

using std::chrono::milliseconds;

// The answer tells that the server has read it.
constexpr char kHeadAlone[] =
    "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";

TEST_F(HttpListenerTest, AnswersOnOneConnectionOneAfterTheOther) {
  Start();
  TestClient client(port());
  for (const char* body : {"one", "two", ""}) {
    client.Send(Post("/echo", body));
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, std::string("POST ") + body);
    EXPECT_EQ(response.Header("Connection"), "");
  }
}

TEST_F(HttpListenerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  TestClient client(port());
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += Post("/echo", std::to_string(i));
  client.Send(requests);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.Receive().body, "POST " + std::to_string(i));
}

TEST_F(HttpListenerTest, RequestPipelinedWhileOneRunsWaitsForItsTurn) {
  Start();
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  client.Send(Post("/echo", "next"));
  std::thread([&] { responder->Send({.body = "held"}); }).join();
  EXPECT_EQ(client.Receive().body, "held");
  EXPECT_EQ(client.Receive().body, "POST next");
}

TEST_F(HttpListenerTest, PartOfTheNextRequestMayComeWhileOneRuns) {
  Start();
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  const std::string next = Post("/echo", "split");
  client.Send(next.substr(0, 20));
  responder->Send({.body = "held"});
  EXPECT_EQ(client.Receive().body, "held");
  client.Send(next.substr(20));
  EXPECT_EQ(client.Receive().body, "POST split");
}

TEST_F(HttpListenerTest, RequestsMayArriveByteByByte) {
  Start();
  TestClient client(port());
  for (const char c : Post("/echo", "slow")) ASSERT_TRUE(client.Send({&c, 1}));
  EXPECT_EQ(client.Receive().body, "POST slow");
}

TEST_F(HttpListenerTest, ChunkedBodiesAreJoined) {
  Start();
  TestClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4;name=value\r\ndefg\r\n0\r\n\r\n");
  EXPECT_EQ(client.Receive().body, "POST abcdefg");
}

TEST_F(HttpListenerTest, ChunkedBodyBeyondTheLimitIsRefused) {
  Start();
  std::string request = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 30; ++i) request += "64\r\n" + std::string(100, 'x') + "\r\n";
  TestClient client(port());
  client.Send(request);
  const TestResponse response = client.Receive();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body, "too large: unknown");
  EXPECT_TRUE(client.IsClosedByServer());
}

TEST_F(HttpListenerTest, TooManyChunksAreRefused) {
  Start({.max_chunks = 3});
  TestClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n0\r\n\r\n");
  const TestResponse response = client.Receive();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body, "Chunked request body exceeds maximum of 3 chunks");
}

TEST_F(HttpListenerTest, AnnouncedGigabyteIsRefusedBeforeItArrives) {
  Start();
  TestClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n");
  const TestResponse response = client.Receive();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body, "too large: 1073741824");
  EXPECT_EQ(response.Header("Connection"), "close");
  EXPECT_TRUE(client.IsClosedByServer());
}

TEST_F(HttpListenerTest, ExpectContinueIsAskedForBeforeTheBody) {
  Start();
  TestClient client(port());
  const std::string request = Post("/echo", "body", "Expect: 100-continue\r\n");
  client.Send(request.substr(0, request.size() - 4));
  EXPECT_EQ(client.Receive().status, 100);
  client.Send("body");
  EXPECT_EQ(client.Receive().body, "POST body");
}

TEST_F(HttpListenerTest, HeadGetsTheLengthWithoutTheBody) {
  Start();
  TestClient client(port());
  client.Send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  const TestResponse response = client.Receive(/*to_head=*/true);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.Header("Content-Length"), "5");
  client.Send(Get("/echo"));
  EXPECT_EQ(client.Receive().body, "GET ");
}

TEST_F(HttpListenerTest, Http10ClosesUnlessKeepAliveIsAskedFor) {
  Start();
  TestClient once(port());
  once.Send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(once.Receive().Header("Connection"), "close");
  EXPECT_TRUE(once.IsClosedByServer());

  TestClient kept(port());
  for (int i = 0; i < 2; ++i) {
    kept.Send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(kept.Receive().Header("Connection"), "keep-alive");
  }
}

TEST_F(HttpListenerTest, GarbageIsRefusedAndTheConnectionClosed) {
  Start({.max_header_bytes = 500});
  const std::string kGarbage[] = {
      "\x16\x03\x01\x02\x01\x01",  // a TLS hello
      "GET\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n{}",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1.5\r\n\r\n{}",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: x\r\nX: " + std::string(1000, 'x') + "\r\n\r\n",
      std::string(4096, '\0'),
      "GET /echo HTTP/9.9\r\n\r\n",
  };
  for (const std::string& garbage : kGarbage) {
    TestClient client(port());
    client.Send(garbage);
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, 400) << garbage;
    EXPECT_TRUE(client.IsClosedByServer()) << garbage;
  }
  EXPECT_EQ(RoundTrip(port(), Get("/echo")).body, "GET ");
}

TEST_F(HttpListenerTest, StreamIsChunkedAndTheConnectionStaysUsable) {
  Start();
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  responder->StartStream(200, {{"Content-Type", "text/event-stream"}});
  EXPECT_EQ(client.Receive(/*to_head=*/true).Header("Transfer-Encoding"), "chunked");
  for (const char* text : {"first", "second"}) {
    responder->WriteChunk(text);
    EXPECT_EQ(client.ReceiveChunk(), text);
  }
  responder->WriteChunk("");
  responder->Finish();
  EXPECT_EQ(client.ReceiveChunk(), "");
  client.Send(Post("/echo", "after"));
  EXPECT_EQ(client.Receive().body, "POST after");
}

TEST_F(HttpListenerTest, StreamThatTheSystemTakesInPartsArrivesWhole) {
  Start({.max_stream_buffer_bytes = 64 << 20});
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  responder->StartStream(200, {});
  std::string expected;
  for (int i = 0; i < 400; ++i) {  // more than the buffers of both sockets have room for
    const std::string chunk(50'000, static_cast<char>('a' + i % 26));
    responder->WriteChunk(chunk);
    expected += chunk;
  }
  responder->Finish();
  const TestResponse response = client.Receive();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body == expected) << response.body.size();
  client.Send(Get("/echo"));
  EXPECT_EQ(client.Receive().status, 200);
}

TEST_F(HttpListenerTest, ChunksThatAreLargerThanTheBufferArrive) {
  Start({.max_stream_buffer_bytes = 1000});
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  responder->StartStream(200, {});
  responder->WriteChunk(std::string(5'000'000, 'a'));
  EXPECT_EQ(client.Receive(/*to_head=*/true).status, 200);
  EXPECT_TRUE(client.ReceiveChunk() == std::string(5'000'000, 'a'));
  responder->WriteChunk(std::string(3'000'000, 'b'));
  EXPECT_TRUE(client.ReceiveChunk() == std::string(3'000'000, 'b'));
  responder->Finish();
  EXPECT_EQ(client.ReceiveChunk(), "");
}

TEST_F(HttpListenerTest, StreamToHttp10IsBareBytesUntilTheEnd) {
  Start();
  TestClient client(port());
  client.Send("GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto responder = handler_.TakeHeld();
  ASSERT_NE(responder, nullptr);
  responder->StartStream(200, {});
  responder->WriteChunk("abc");
  responder->WriteChunk("def");
  responder->Finish();
  const TestResponse response = client.Receive();
  EXPECT_EQ(response.Header("Transfer-Encoding"), "");
  EXPECT_EQ(response.body, "abcdef");
}

TEST_F(HttpListenerTest, SegmentsAreSentFromWhereTheyLie) {
  Start();
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  auto large = std::make_shared<std::string>(5'000'000, 'y');
  HttpResponse response{.body = "head:"};
  response.segments.push_back({std::as_bytes(std::span(*large)), large});
  const std::weak_ptr<std::string> watch = large;
  const std::string expected = "head:" + *large;
  large.reset();
  responder->Send(std::move(response));
  EXPECT_EQ(client.Receive().body, expected);
  client.Send(Get("/echo"));
  client.Receive();
  EXPECT_TRUE(watch.expired());
}

TEST_F(HttpListenerTest, DisconnectIsToldWhileTheRequestRuns) {
  Start();
  for (const bool is_reset : {false, true}) {
    TestClient client(port());
    const auto responder = Hold(client);
    ASSERT_NE(responder, nullptr);
    std::promise<void> told;
    responder->OnDisconnect([&told] { told.set_value(); });
    is_reset ? client.Reset() : client.Close();
    EXPECT_EQ(told.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
    responder->Send({.body = "nobody reads this"});
    bool is_told_at_once = false;
    responder->OnDisconnect([&is_told_at_once] { is_told_at_once = true; });
    EXPECT_TRUE(is_told_at_once);
  }
}

TEST_F(HttpListenerTest, SlowReaderOfAStreamIsDisconnected) {
  Start({.max_stream_buffer_bytes = 100'000});
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  std::promise<void> told;
  auto is_told = told.get_future();
  responder->OnDisconnect([&told] { told.set_value(); });
  responder->StartStream(200, {});
  const std::string chunk(50'000, 'z');
  // The system's socket buffers take some megabytes first.
  for (int i = 0; i < 2000 && is_told.wait_for(milliseconds(0)) != std::future_status::ready; ++i) {
    responder->WriteChunk(chunk);
  }
  EXPECT_EQ(is_told.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(HttpListenerTest, DroppedRequestIsAnswered) {
  Start();
  EXPECT_EQ(RoundTrip(port(), Get("/drop")).status, 500);
  EXPECT_EQ(RoundTrip(port(), Get("/throw")).status, 500);
}

TEST_F(HttpListenerTest, BrokenOffStreamDoesNotLookComplete) {
  Start();
  TestClient client(port());
  client.Send(Get("/hold"));
  auto responder = handler_.TakeHeld();
  ASSERT_NE(responder, nullptr);
  responder->StartStream(200, {});
  responder->WriteChunk("half");
  EXPECT_EQ(client.Receive(/*to_head=*/true).status, 200);
  EXPECT_EQ(client.ReceiveChunk(), "half");
  responder.reset();
  EXPECT_TRUE(client.IsClosedByServer());
}

TEST_F(HttpListenerTest, WhatItsHeadRefusesIsNotRead) {
  handler_.max_body_bytes = 1 << 20;
  Start();
  for (const char* framing : {"Content-Length: 100000", "Transfer-Encoding: chunked",
                              "Expect: 100-continue\r\nContent-Length: 100000"}) {
    TestClient client(port());
    client.Send("POST /forbidden HTTP/1.1\r\nHost: x\r\n" + std::string(framing) + "\r\n\r\n");
    const TestResponse response = client.Receive();
    EXPECT_EQ(response.status, 403) << framing;
    EXPECT_EQ(response.body, "by its head");
    EXPECT_TRUE(client.IsClosedByServer());
  }
  // A short one is read, and its connection goes on.
  TestClient client(port());
  EXPECT_EQ(client.Ask(Post("/forbidden", "short")).body, "POST short");
  EXPECT_EQ(client.Ask(Post("/echo", "next")).body, "POST next");
}

TEST_F(HttpListenerTest, StalledHeadAndBodyTimeOut) {
  Start({.header_timeout = milliseconds(50), .body_timeout = milliseconds(50)});
  for (const char* part :
       {"GET /ec", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"}) {
    TestClient client(port());
    client.Send(part);
    EXPECT_TRUE(client.IsClosedByServer());
  }
}

// What throws on the thread of a connection takes the work with it that would have gone on.
TEST_F(HttpListenerTest, AConnectionThatIsLostToAnExceptionEndsAtItsDeadline) {
  handler_.max_body_bytes = 1'000'000;
  Start({.threads = 1, .max_connections = 2, .header_timeout = milliseconds(50)});
  for (int i = 0; i < 5; ++i) {  // more than there may be at a time
    TestClient client(port());
    client.Send(Post("/throw_by_head", std::string(100'000, 'x')));
    EXPECT_TRUE(client.IsClosedByServer());
  }
  TestClient client(port());
  EXPECT_EQ(client.Ask(Post("/echo", "next")).body, "POST next");
}

TEST_F(HttpListenerTest, IdleConnectionTimesOutOnlyWhenAsked) {
  Start({.idle_timeout = milliseconds(50)});
  TestClient client(port());
  client.Send(Get("/echo"));
  EXPECT_EQ(client.Receive().status, 200);
  EXPECT_TRUE(client.IsClosedByServer());
}

TEST_F(HttpListenerTest, ConnectionsBeyondTheLimitAreToldSoWhereAllRun) {
  Start({.max_connections = 1});
  TestClient first(port());
  const auto responder = Hold(first);
  ASSERT_NE(responder, nullptr);
  TestClient second(port());
  EXPECT_EQ(second.Receive().status, 503);
  responder->Send({.body = "of the first"});
  EXPECT_EQ(first.Receive().body, "of the first");
}

TEST_F(HttpListenerTest, ConnectionsThatWereRefusedKeepNobodyOut) {
  Start({.threads = 1, .max_connections = 2});
  TestClient running(port());
  const auto responder = Hold(running);
  ASSERT_NE(responder, nullptr);
  TestClient half(port(), "127.0.0.2");
  EXPECT_EQ(half.Ask(kHeadAlone).status, 100);
  TestClient refused(port(), "127.0.0.2");  // whose end the server waits for
  EXPECT_EQ(refused.Receive().status, 503);
  TestClient newcomer(port());
  EXPECT_EQ(newcomer.Ask(Get("/echo")).status, 200);
  EXPECT_TRUE(refused.IsClosedByServer());
  EXPECT_TRUE(half.IsClosedByServer());
  responder->Send({.body = "still there"});
  EXPECT_EQ(running.Receive().body, "still there");
}

TEST_F(HttpListenerTest, ConnectionThatIsIdleLongestGivesWay) {
  Start({.threads = 1, .max_connections = 3});
  TestClient running(port());
  const auto responder = Hold(running);
  ASSERT_NE(responder, nullptr);
  TestClient idle(port());
  EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
  TestClient used(port());
  EXPECT_EQ(used.Ask(Get("/echo")).status, 200);
  TestClient newcomer(port());
  EXPECT_EQ(newcomer.Ask(Get("/echo")).status, 200);
  EXPECT_TRUE(idle.IsClosedByServer());
  EXPECT_EQ(used.Ask(Get("/echo")).status, 200);
  responder->Send({.body = "still there"});
  EXPECT_EQ(running.Receive().body, "still there");
}

TEST_F(HttpListenerTest, ConnectionOfAnotherThreadGivesWay) {
  Start({.threads = 2, .max_connections = 2});
  TestClient running(port());
  const auto responder = Hold(running);
  ASSERT_NE(responder, nullptr);
  TestClient half(port());
  EXPECT_EQ(half.Ask(kHeadAlone).status, 100);
  TestClient newcomer(port(), "127.0.0.2");  // on the thread of the one that runs
  EXPECT_EQ(newcomer.Ask(Get("/echo")).status, 200);
  EXPECT_TRUE(half.IsClosedByServer());
  responder->Send({.body = "still there"});
  EXPECT_EQ(running.Receive().body, "still there");
}

TEST_F(HttpListenerTest, ClientWithMostConnectionsGivesWay) {
  Start({.threads = 1, .max_connections = 3});
  TestClient idle(port());
  EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
  TestClient first(port(), "127.0.0.2");
  EXPECT_EQ(first.Ask(kHeadAlone).status, 100);
  TestClient second(port(), "127.0.0.2");
  EXPECT_EQ(second.Ask(kHeadAlone).status, 100);
  TestClient newcomer(port());
  EXPECT_EQ(newcomer.Ask(Get("/echo")).status, 200);
  EXPECT_TRUE(first.IsClosedByServer());
  EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
  second.Send("abc");
  EXPECT_EQ(second.Receive().body, "POST abc");
}

TEST_F(HttpListenerTest, ClientThatHoldsMostPushesNobodyOut) {
  Start({.threads = 1, .max_connections = 3});
  TestClient idle(port());
  EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
  TestClient first(port(), "127.0.0.2");
  EXPECT_EQ(first.Ask(kHeadAlone).status, 100);
  TestClient second(port(), "127.0.0.2");
  EXPECT_EQ(second.Ask(kHeadAlone).status, 100);
  TestClient third(port(), "127.0.0.2");
  EXPECT_EQ(third.Receive().status, 503);
  EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
  for (TestClient* client : {&first, &second}) {
    client->Send("abc");
    EXPECT_EQ(client->Receive().body, "POST abc");
  }
}

TEST_F(HttpListenerTest, ClientThatHoldsMostGivesWayWhicheverThreadsItIsOn) {
  Start({.threads = 2, .max_connections = 6});  // by turns on the one and the other
  TestClient idle(port());
  EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
  TestClient first(port(), "127.0.0.2");
  EXPECT_EQ(first.Ask(Get("/echo")).status, 200);
  TestClient running(port());
  const auto responder = Hold(running);
  ASSERT_NE(responder, nullptr);
  TestClient second(port(), "127.0.0.2");
  EXPECT_EQ(second.Ask(Get("/echo")).status, 200);
  TestClient running_too(port());
  const auto responder_too = Hold(running_too);
  ASSERT_NE(responder_too, nullptr);
  TestClient third(port(), "127.0.0.2");  // by its answer the server is done with the others'
  EXPECT_EQ(third.Ask(Get("/echo")).status, 200);
  TestClient newcomer(port(), "127.0.0.3");  // on the thread of `idle`
  EXPECT_EQ(newcomer.Ask(Get("/echo")).status, 200);
  EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
  EXPECT_TRUE(first.IsClosedByServer());
  EXPECT_EQ(second.Ask(Get("/echo")).status, 200);
  responder->Send({.body = "still there"});
  EXPECT_EQ(running.Receive().body, "still there");
  responder_too->Send({.body = "there too"});
  EXPECT_EQ(running_too.Receive().body, "there too");
}

TEST_F(HttpListenerTest, RequestThatIsOnItsWayGivesWayToNobodyOfTheSameClient) {
  Start({.threads = 1, .max_connections = 1});
  TestClient half(port());
  EXPECT_EQ(half.Ask(kHeadAlone).status, 100);
  TestClient newcomer(port());
  EXPECT_EQ(newcomer.Receive().status, 503);
  half.Send("abc");
  EXPECT_EQ(half.Receive().body, "POST abc");
}

TEST_F(HttpListenerTest, StopLetsRunningRequestsFinish) {
  Start();
  TestClient running(port());
  const auto responder = Hold(running);
  ASSERT_NE(responder, nullptr);
  TestClient idle(port());
  idle.Send(Get("/echo"));
  EXPECT_EQ(idle.Receive().status, 200);

  auto stopped =
      std::async(std::launch::async, [this] { listener_->Stop(std::chrono::seconds(10)); });
  EXPECT_TRUE(idle.IsClosedByServer());
  responder->Send({.body = "finished"});
  const TestResponse response = running.Receive();
  EXPECT_EQ(response.body, "finished");
  EXPECT_EQ(response.Header("Connection"), "close");
  running.Close();
  stopped.get();
}

TEST_F(HttpListenerTest, StopCancelsWhatDoesNotFinishInTime) {
  Start();
  TestClient client(port());
  const auto responder = Hold(client);
  ASSERT_NE(responder, nullptr);
  bool is_told = false;
  responder->OnDisconnect([&is_told] { is_told = true; });
  listener_->Stop(milliseconds(10));
  EXPECT_TRUE(is_told);
  EXPECT_TRUE(client.IsClosedByServer());
  responder->Send({.body = "too late"});  // after the listener's threads have gone
}

TEST_F(HttpListenerTest, PortInUseIsAnErrorThatNamesIt) {
  Start();
  const auto second = HttpListener::Start(handler_, {.address = "127.0.0.1", .port = port()});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(std::to_string(port())), std::string::npos);
  EXPECT_FALSE(HttpListener::Start(handler_, {.address = "nowhere"}).ok());
  EXPECT_FALSE(HttpListener::Start(handler_, {.address = "127.0.0.1", .port = 70000}).ok());
}

TEST_F(HttpListenerTest, APortIsSharedByThoseThatAllAskForIt) {
  Start({.reuse_port = true});
  EXPECT_FALSE(HttpListener::Start(handler_, {.address = "127.0.0.1", .port = port()}).ok());
  const auto second =
      HttpListener::Start(handler_, {.address = "127.0.0.1", .port = port(), .reuse_port = true});
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ((*second)->port(), port());
}

TEST_F(HttpListenerTest, AddressesMayBeInTheFormsOfTriton) {
  for (const char* address : {"ipv4:127.0.0.1", "[::1]", "ipv6:[::1]", "ipv6:::1"}) {
    const auto listener = HttpListener::Start(handler_, {.address = address});
    const bool is_ipv6 = std::string_view(address).find("::1") != std::string_view::npos;
    // Machines without IPv6 refuse the bind, not the address.
    if (is_ipv6 && !listener.ok()) {
      EXPECT_NE(listener.status().message().find("cannot listen on"), std::string::npos);
      continue;
    }
    EXPECT_TRUE(listener.ok()) << address << ": " << listener.status().ToString();
  }
  for (const char* address : {"ipv6:", "[::1", "ipv7:[::1]"})
    EXPECT_FALSE(HttpListener::Start(handler_, {.address = address}).ok()) << address;
}

TEST_F(HttpListenerTest, ManyClientsOnSeveralThreads) {
  Start({.threads = 3});
  std::vector<std::thread> clients;
  std::atomic<int> num_good = 0;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([this, i, &num_good] {
      TestClient client(port());
      for (int j = 0; j < 20; ++j) {
        const std::string body = std::to_string(i * 100 + j);
        client.Send(Post("/echo", body));
        num_good += client.Receive().body == "POST " + body;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(num_good, 16 * 20);
}

TEST(HttpRequestTest, PathIsTargetWithoutQueryAndAuthority) {
  const auto path = [](std::string target) {
    return std::string(HttpRequest{.target = std::move(target)}.path());
  };
  EXPECT_EQ(path("/v2/health/live?"), "/v2/health/live");
  EXPECT_EQ(path("/v2?a=/b"), "/v2");
  EXPECT_EQ(path("http://localhost/v2/health/live"), "/v2/health/live");
  EXPECT_EQ(path("http://localhost"), "/");
  EXPECT_EQ(path("/a://b"), "/a://b");
  EXPECT_EQ(path("*"), "*");
}

}  // namespace
}  // namespace inflight::http_listener

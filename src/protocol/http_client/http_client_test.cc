// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_client/http_client.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "protocol/http_listener/http_listener.h"

namespace inflight::http_client {
namespace {

void ExpectUrl(const std::string& text, const Url& expected) {
  const auto url = ParseUrl(text);
  ASSERT_TRUE(url.ok()) << text;
  EXPECT_EQ(url->is_tls, expected.is_tls) << text;
  EXPECT_EQ(url->host, expected.host) << text;
  EXPECT_EQ(url->port, expected.port) << text;
  EXPECT_EQ(url->path, expected.path) << text;
}

TEST(UrlTest, HostPortAndPath) {
  ExpectUrl("http://localhost:4318/v1/traces", {false, "localhost", "4318", "/v1/traces"});
  ExpectUrl("http://collector", {false, "collector", "80", "/"});
  ExpectUrl("http://[::1]:4318/x", {false, "::1", "4318", "/x"});
  ExpectUrl("http://[::1]/x", {false, "::1", "80", "/x"});
  ExpectUrl("https://hooks.example.com/a?b=c#d", {true, "hooks.example.com", "443", "/a?b=c"});
  ExpectUrl("https://hooks.example.com:8443?b=c", {true, "hooks.example.com", "8443", "/?b=c"});
}

TEST(UrlTest, WhatIsNone) {
  for (const char* text :
       {"", "localhost:4318", "ftp://c/x", "http://", "http://:80/", "http://c:/", "http://c:port/",
        "http://c:65536/", "http://user@c/", "http://a b/", "http://c/\r\nHost: d"}) {
    EXPECT_EQ(ParseUrl(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

// Port 1 needs a right to listen on that no test has.
Request ToNobody() {
  return {.url = {false, "127.0.0.1", "1", "/"}, .headers = {}, .body = "{}", .may_reach = {}};
}

TEST(PostJsonTest, AServerThatIsNotThereIsAnError) {
  EXPECT_EQ(PostJson(ToNobody()).code(), StatusCode::kUnavailable);
}

TEST(PostJsonTest, AnAddressThatMayNotBeReachedIsNotCalled) {
  Request request = ToNobody();
  request.may_reach = [](const auto& address) { return !address.is_loopback(); };
  EXPECT_EQ(PostJson(std::move(request)).code(), StatusCode::kPermissionDenied);
}

// Says what it was asked; /stream in chunks, /large more than anybody wants.
class Echo : public http_listener::HttpHandler {
 public:
  Echo() {
    auto started = http_listener::HttpListener::Start(*this, {.address = "127.0.0.1"});
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    listener_ = *std::move(started);
  }

  Request At(const std::string& path) const {
    Request request;
    request.url = {false, "127.0.0.1", std::to_string(listener_->port()), path};
    request.max_answer_bytes = 1000;
    return request;
  }

 private:
  using HttpRequest = http_listener::HttpRequest;
  using HttpResponse = http_listener::HttpResponse;

  size_t MaxBodyBytes(const HttpRequest&) const override { return 1 << 20; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t>) const override {
    return {.status = 413};
  }
  HttpResponse BadRequest(std::string_view) const override { return {.status = 400}; }
  void Handle(HttpRequest request,
              std::shared_ptr<http_listener::HttpResponder> responder) override {
    if (request.target == "/stream") {
      responder->StartStream(201, {{"X-Kind", "stream"}});
      responder->WriteChunk("a");
      responder->WriteChunk("bc");
      return responder->Finish();
    }
    if (request.target == "/large") return responder->Send({.body = std::string(1001, 'x')});
    const std::string* word = request.FindHeader("X-Word");
    responder->Send({.body = request.method + " " + request.target + " " +
                             (word == nullptr ? "" : *word) + " " + *request.body});
  }

  std::unique_ptr<http_listener::HttpListener> listener_;
};

TEST(AskTest, TheAnswerIsThatOfTheRequest) {
  const Echo echo;
  Request request = echo.At("/a?b=1");
  request.method = "PUT";
  request.headers = {{"X-Word", "hello"}};
  request.body = "body";
  const auto answer = Ask(std::move(request));
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "PUT /a?b=1 hello body");
}

TEST(AskTest, AStreamIsToldAsItComes) {
  const Echo echo;
  Request request = echo.At("/stream");
  int status = 0;
  std::string told;
  request.on_head = [&](const Answer& head) { status = head.status; };
  request.on_bytes = [&](std::string_view bytes) {
    EXPECT_EQ(status, 201);
    told += bytes;
  };
  const auto answer = Ask(std::move(request));
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(told, "abc");
  EXPECT_EQ(answer->body, "abc");
  EXPECT_EQ(answer->headers.front(), std::pair(std::string("X-Kind"), std::string("stream")));
}

TEST(AskTest, AnAnswerThatIsTooLongIsNone) {
  const Echo echo;
  EXPECT_EQ(Ask(echo.At("/large")).status().code(), StatusCode::kUnavailable);
  Request request = echo.At("/large");
  request.max_answer_bytes = 0;  // its head alone
  const auto head = Ask(std::move(request));
  ASSERT_TRUE(head.ok()) << head.status().ToString();
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
}

}  // namespace
}  // namespace inflight::http_client

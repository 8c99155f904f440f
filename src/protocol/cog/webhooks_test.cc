// SPDX-License-Identifier: Apache-2.0
// Webhooks against a receiver on loopback that answers as the test says.
#include "protocol/cog/webhooks.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "protocol/http_listener/http_listener.h"

namespace inflight::cog {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

class Receiver : public http_listener::HttpHandler {
 public:
  Receiver() {
    auto started = http_listener::HttpListener::Start(*this, {.address = "127.0.0.1"});
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    listener_ = *std::move(started);
  }

  std::string Url() const {
    return "http://127.0.0.1:" + std::to_string(listener_->port()) + "/h?x=1";
  }
  // The next answers; 200 from then on.
  void AnswerWith(std::deque<int> statuses) { statuses_ = std::move(statuses); }
  std::vector<HttpRequest> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        came_.wait_for(lock, std::chrono::seconds(10), [&] { return requests_.size() >= count; }));
    return requests_;
  }

 private:
  size_t MaxBodyBytes(const HttpRequest&) const override { return 1 << 20; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t>) const override {
    return {.status = 413};
  }
  HttpResponse BadRequest(std::string_view) const override { return {.status = 400}; }
  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    int status = 200;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::move(request));
      if (!statuses_.empty()) {
        status = statuses_.front();
        statuses_.pop_front();
      }
    }
    responder->Send({.status = status});
    came_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<HttpRequest> requests_;
  std::deque<int> statuses_;
  std::unique_ptr<http_listener::HttpListener> listener_;
};

WebhookOptions Fast() {
  WebhookOptions options;
  options.allowed = {"127.0.0.1"};
  options.backoff = std::chrono::milliseconds(1);
  return options;
}

constexpr std::chrono::seconds kLong{10};

class WebhooksTest : public testing::Test {
 protected:
  std::shared_ptr<Webhook> Open(const WebhookOptions& options, Events events = kAllEvents) {
    auto caller = WebhookCaller::Start(options);
    EXPECT_TRUE(caller.ok());
    caller_ = *std::move(caller);
    auto webhook = caller_->Open(receiver_.Url(), events);
    EXPECT_TRUE(webhook.ok()) << webhook.status().ToString();
    return *std::move(webhook);
  }
  static void Send(Webhook& webhook, Event event, const std::string& body) {
    webhook.Send(event, [&] { return body; });
  }

  Receiver receiver_;
  std::unique_ptr<WebhookCaller> caller_;
};

TEST_F(WebhooksTest, ACallHasTheObjectAndSaysWhoCalls) {
  WebhookOptions options = Fast();
  options.token = "secret";
  const auto webhook = Open(options);
  Send(*webhook, Event::kCompleted, R"({"a":1})");
  const HttpRequest got = receiver_.WaitFor(1)[0];
  EXPECT_EQ(got.method, "POST");
  EXPECT_EQ(got.target, "/h?x=1");
  EXPECT_EQ(*got.body, R"({"a":1})");
  EXPECT_EQ(*got.FindHeader("Content-Type"), "application/json");
  EXPECT_EQ(*got.FindHeader("Authorization"), "Bearer secret");
  EXPECT_TRUE(got.FindHeader("User-Agent")->starts_with("cog-worker/"));
}

TEST_F(WebhooksTest, OutputsWithinTheIntervalAreLeftOutAndTheEndIsNot) {
  WebhookOptions options = Fast();
  options.interval = std::chrono::hours(1);
  const auto webhook = Open(options);
  Send(*webhook, Event::kStart, "start");
  for (int i = 0; i < 3; ++i) Send(*webhook, Event::kOutput, "output");
  Send(*webhook, Event::kCompleted, "end");
  caller_->Drain(kLong);
  const auto got = receiver_.WaitFor(2);
  ASSERT_EQ(got.size(), 2);
  EXPECT_EQ(*got[0].body, "start");
  EXPECT_EQ(*got[1].body, "end");
}

TEST_F(WebhooksTest, TheFilterLeavesOutEvents) {
  const auto webhook = Open(Fast(), static_cast<Events>(Event::kCompleted));
  Send(*webhook, Event::kStart, "start");
  Send(*webhook, Event::kOutput, "output");
  Send(*webhook, Event::kCompleted, "end");
  caller_->Drain(kLong);
  EXPECT_EQ(receiver_.WaitFor(1).size(), 1);
}

TEST_F(WebhooksTest, ShortIntervalsLeaveOutTheStart) {
  WebhookOptions options = Fast();
  options.interval = std::chrono::milliseconds(99);
  const auto webhook = Open(options);
  Send(*webhook, Event::kStart, "start");
  Send(*webhook, Event::kOutput, "output");
  EXPECT_EQ(*receiver_.WaitFor(1)[0].body, "output");
}

TEST_F(WebhooksTest, TheEndIsTriedAgainAndOthersAreNot) {
  receiver_.AnswerWith({500, 503, 429});
  const auto webhook = Open(Fast());
  Send(*webhook, Event::kStart, "start");
  Send(*webhook, Event::kCompleted, "end");
  caller_->Drain(kLong);
  const auto got = receiver_.WaitFor(4);
  ASSERT_EQ(got.size(), 4);
  EXPECT_EQ(*got[0].body, "start");
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(*got[i].body, "end");
}

TEST_F(WebhooksTest, ItIsGivenUpAfterSoManyTriesOrAtOnceWhereItIsRefused) {
  WebhookOptions options = Fast();
  options.max_tries = 3;
  receiver_.AnswerWith({500, 500, 500, 404});
  const auto webhook = Open(options);
  Send(*webhook, Event::kCompleted, "end");
  caller_->Drain(kLong);
  EXPECT_EQ(receiver_.WaitFor(3).size(), 3);
  auto refused = caller_->Open(receiver_.Url(), kAllEvents);
  Send(**refused, Event::kCompleted, "end");
  caller_->Drain(kLong);
  EXPECT_EQ(receiver_.WaitFor(4).size(), 4);
}

TEST_F(WebhooksTest, WhatHasNoRoomIsLeftOut) {
  WebhookOptions options = Fast();
  options.max_bytes = 10;
  const auto webhook = Open(options);
  Send(*webhook, Event::kCompleted, std::string(11, 'x'));
  Send(*webhook, Event::kCompleted, std::string(10, 'y'));
  caller_->Drain(kLong);
  const auto got = receiver_.WaitFor(1);
  ASSERT_EQ(got.size(), 1);
  EXPECT_EQ(*got[0].body, std::string(10, 'y'));
}

TEST_F(WebhooksTest, AWebhookThatOutlivesTheCallerDoesNothing) {
  const auto webhook = Open(Fast());
  caller_.reset();
  Send(*webhook, Event::kCompleted, "end");
}

}  // namespace
}  // namespace inflight::cog

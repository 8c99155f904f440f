// SPDX-License-Identifier: Apache-2.0
// For tests: a listener whose handler echoes, holds, drops or throws.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "protocol/http_listener/http_listener.h"
#include "protocol/http_listener/test_client.h"

namespace inflight::http_listener {

// "/echo" answers with method and body, "/length" with the body's length; "/hold" keeps the
// responder for the test; "/drop" drops it; "/raw" answers with the raw values, each before a bar.
class EchoHandler : public HttpHandler {
 public:
  size_t MaxBodyBytes(const HttpRequest&) const override { return max_body_bytes; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t> size) const override {
    return {.status = 400, .body = "too large: " + (size ? std::to_string(*size) : "unknown")};
  }
  HttpResponse BadRequest(std::string_view reason) const override {
    return {.status = 400, .body = std::string(reason)};
  }
  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) const override {
    if (head.path() == "/throw_by_head") throw std::bad_alloc();
    if (head.path() != "/forbidden") return std::nullopt;
    return HttpResponse{.status = 403, .body = "by its head"};
  }
  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    if (request.path() == "/drop") return;
    if (request.path() == "/length") {
      return responder->Send({.body = std::to_string(request.body->size())});
    }
    if (request.path() == "/raw") {
      std::string values;
      for (const std::string& value : request.raw_values) values += value + "|";
      return responder->Send({.body = values});
    }
    if (request.path() == "/throw") throw std::runtime_error("from the handler");
    if (request.path() != "/hold") {
      return responder->Send({.body = request.method + " " + *request.body});
    }
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(responder));
    changed_.notify_all();
  }

  size_t max_body_bytes = 1000;

  std::shared_ptr<HttpResponder> TakeHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [this] { return !held_.empty(); });
    if (held_.empty()) return nullptr;
    auto responder = std::move(held_.front());
    held_.erase(held_.begin());
    return responder;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HttpResponder>> held_;
};

class HttpListenerTest : public testing::Test {
 protected:
  void Start(ListenerOptions options = {}) {
    options.address = "127.0.0.1";
    auto listener = HttpListener::Start(handler_, options);
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    listener_ = *std::move(listener);
  }
  int port() const { return listener_->port(); }
  // A request that runs until the test answers it.
  std::shared_ptr<HttpResponder> Hold(TestClient& client) {
    client.Send(Get("/hold"));
    return handler_.TakeHeld();
  }

  EchoHandler handler_;
  std::unique_ptr<HttpListener> listener_;
};

}  // namespace inflight::http_listener

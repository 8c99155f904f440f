// SPDX-License-Identifier: Apache-2.0
#include "shadow/proxy.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <thread>
#include <utility>

#include "base/letter_case.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "json/json_writer.h"

namespace inflight::shadow {
namespace {

using http_client::Answer;
using http_listener::HttpRequest;
using http_listener::HttpResponder;
using http_listener::HttpResponse;

HttpResponse ErrorAnswer(int status, std::string_view what) {
  return {.status = status,
          .headers = {{"Content-Type", "application/json"}},
          .body = ::inflight::json::ErrorBody(what)};
}

// The old server's answer on its way to a client: whole where its length was known, else as it
// comes.
class PassedAnswer {
 public:
  explicit PassedAnswer(std::shared_ptr<HttpResponder> responder)
      : responder_(std::move(responder)) {}

  void OnHead(const Answer& head) {
    for (const auto& [name, value] : head.headers) {
      if (EqualInAnyCase(name, "Content-Length")) has_length_ = true;
      if (!IsHopByHop(name)) headers_.emplace_back(name, value);
    }
    if (!has_length_) responder_->StartStream(head.status, headers_);
    has_head_ = true;
  }
  void OnBytes(std::string_view bytes) {
    if (!has_length_) responder_->WriteChunk(bytes);
  }
  void OnEnd(const Result<Answer>& answer) {
    if (!answer.ok()) {
      // A stream that was begun is broken off, as its client would have seen.
      if (!has_head_ || has_length_)
        responder_->Send(ErrorAnswer(502, "the old server: " + answer.status().message()));
    } else if (has_length_) {
      responder_->Send({.status = answer->status, .headers = headers_, .body = answer->body});
    } else {
      responder_->Finish();
    }
    responder_.reset();
  }

 private:
  std::shared_ptr<HttpResponder> responder_;
  http_listener::Headers headers_;
  bool has_head_ = false;
  bool has_length_ = false;
};

class ProxyHandler : public http_listener::HttpHandler {
 public:
  ProxyHandler(const ProxyOptions& options, Report& report)
      : options_(options), report_(report), thread_([this] {
          NameThisThread("shadow");
          io_.run();
        }) {}
  ~ProxyHandler() override {
    io_.stop();
    thread_.join();
  }

  size_t MaxBodyBytes(const HttpRequest&) const override { return options_.max_body_bytes; }
  HttpResponse BodyTooLarge(const HttpRequest&, std::optional<uint64_t>) const override {
    return ErrorAnswer(
        413, "the body is larger than " + std::to_string(options_.max_body_bytes) + " bytes");
  }
  HttpResponse BadRequest(std::string_view reason) const override {
    return ErrorAnswer(400, reason);
  }

  bool has_pending() const { return num_pending_ > 0; }

  void Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    RecordedRequest recorded{
        .method = request.method, .path = request.target, .headers = {}, .body = *request.body};
    for (auto& [name, value] : request.headers)
      if (!IsHopByHop(name)) recorded.headers.emplace_back(std::move(name), std::move(value));
    Record(recorded);
    auto passed = std::make_shared<PassedAnswer>(std::move(responder));
    boost::asio::post(io_, [this, recorded = std::move(recorded), passed]() mutable {
      Pass(std::move(recorded), passed);
    });
  }

 private:
  void Record(const RecordedRequest& request) {
    if (options_.record == nullptr) return;
    const std::string line = WriteRecordedRequest(request) + "\n";
    const std::lock_guard lock(record_mutex_);
    std::fwrite(line.data(), 1, line.size(), options_.record);
    std::fflush(options_.record);
  }

  // On the thread of the calls.
  void Pass(RecordedRequest request, const std::shared_ptr<PassedAnswer>& passed) {
    Listening listening{[passed](const Answer& head) { passed->OnHead(head); },
                        [passed](std::string_view bytes) { passed->OnBytes(bytes); },
                        [passed](const Result<Answer>& answer) { passed->OnEnd(answer); }};
    if (num_pending_ >= options_.max_pending) {
      report_.AddLeftOut();
      return AskOld(io_, options_.shadow, request, std::move(listening));
    }
    ++num_pending_;
    AskBoth(io_, options_.shadow, std::move(request), std::move(listening),
            [this](const Outcome& outcome) {
              report_.Add(outcome);
              --num_pending_;
            });
  }

  const ProxyOptions options_;
  Report& report_;
  std::mutex record_mutex_;
  std::atomic<int> num_pending_{0};
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(io_);
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Proxy>> Proxy::Start(const ProxyOptions& options, Report& report) {
  auto handler = std::make_unique<ProxyHandler>(options, report);
  const ProxyHandler& of_proxy = *handler;
  std::unique_ptr<Proxy> proxy(new Proxy(std::move(handler)));
  proxy->has_pending_ = [&of_proxy] { return of_proxy.has_pending(); };
  RETURN_IF_ERROR(proxy->Listen(options.listener));
  return proxy;
}

void Proxy::Stop(std::chrono::milliseconds drain) {
  const auto end = std::chrono::steady_clock::now() + drain;
  ListeningServer::Stop(drain);
  while (has_pending_() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace inflight::shadow

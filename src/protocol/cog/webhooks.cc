// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/webhooks.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/idle_memory.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "inflight/version.h"
#include "protocol/http_client/http_client.h"

namespace inflight::cog {

namespace asio = boost::asio;
using SteadyClock = std::chrono::steady_clock;

// The thread of the calls, and what all of them share.
class WebhookCalls {
 public:
  WebhookCalls(const WebhookOptions& options, WebhookRule rule)
      : options_(options), rule_(std::move(rule)), thread_([this] {
          NameThisThread("webhook");
          Run();
        }) {}
  ~WebhookCalls() { Stop(); }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_stopped_, true)) return;
    }
    idle_.notify_all();
    io_.stop();
    thread_.join();
  }

  // Room for a body, until Release. False: there is none, or nothing is sent any more.
  bool Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (is_stopped_ || bytes_ + bytes > options_.max_bytes) return false;
    bytes_ += bytes;
    ++num_bodies_;
    return true;
  }
  void Release(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      bytes_ -= bytes;
      --num_bodies_;
    }
    idle_.notify_all();
  }
  void Drain(std::chrono::milliseconds budget) {
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, budget, [this] { return is_stopped_ || num_bodies_ == 0; });
  }

  const WebhookOptions& options() const { return options_; }
  const WebhookRule& rule() const { return rule_; }
  asio::io_context& io() { return io_; }

 private:
  void Run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& e) {  // such as bad_alloc: that call's trouble alone
        logging::Error("a webhook was lost", {{"error", e.what()}});
      }
    }
  }

  const WebhookOptions options_;
  const WebhookRule rule_;
  std::mutex mutex_;
  std::condition_variable idle_;
  bool is_stopped_ = false;
  size_t bytes_ = 0;
  size_t num_bodies_ = 0;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  std::thread thread_;
};

namespace {

constexpr std::chrono::milliseconds kLeastIntervalWithStart{100};

// As urllib3 does for cog: what a server may say when it is busy or restarts.
bool IsWorthAnotherTry(int status) {
  return status == 429 || status == 500 || (status >= 502 && status <= 504);
}

// Room among all bodies. What waits in the thread's queue must not keep the thread.
class Body {
 public:
  static std::optional<Body> Make(const std::shared_ptr<WebhookCalls>& calls, std::string text) {
    if (!calls->Take(text.size())) return std::nullopt;
    return Body(calls, std::move(text));
  }
  Body(Body&& other) noexcept
      : calls_(std::move(other.calls_)), text_(std::move(other.text_)), bytes_(other.bytes_) {}
  Body& operator=(Body&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(text_, other.text_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Body() {
    if (const auto calls = calls_.lock()) calls->Release(bytes_);
  }
  const std::string& text() const { return text_; }

 private:
  Body(const std::shared_ptr<WebhookCalls>& calls, std::string text)
      : calls_(calls), text_(std::move(text)), bytes_(text_.size()) {}

  std::weak_ptr<WebhookCalls> calls_;
  std::string text_;
  size_t bytes_;
};

class CalledWebhook : public Webhook, public std::enable_shared_from_this<CalledWebhook> {
 public:
  CalledWebhook(const std::shared_ptr<WebhookCalls>& calls, http_client::Url url, Events events)
      : calls_(calls), url_(std::move(url)), events_(events) {}

  void Send(Event event, const std::function<std::string()>& body) override {
    const auto calls = calls_.lock();
    if (calls == nullptr || (events_ & static_cast<Events>(event)) == 0) return;
    // Where outputs are to come fast, the start must not delay the first of them.
    if (event == Event::kStart && calls->options().interval < kLeastIntervalWithStart) return;
    const bool is_end = event == Event::kCompleted;
    const std::lock_guard lock(mutex_);
    if (!is_end && (is_calling_ || SteadyClock::now() < next_)) return;
    auto made = Body::Make(calls, body());
    if (!made) {
      return logging::Warning("a webhook is not called, since too many wait",
                              {{"host", url_.host}, {"completed", is_end}});
    }
    if (is_calling_) {
      end_ = std::move(made);
    } else {
      CallLocked(*calls, *std::move(made), is_end);
    }
  }

 private:
  void CallLocked(WebhookCalls& calls, Body body, bool is_end) {
    is_calling_ = true;
    const WebhookOptions& options = calls.options();
    http_client::Request request{
        .url = url_,
        .headers = {{"Content-Type", "application/json"},
                    {"User-Agent", "cog-worker/inflight-" + std::string(kVersion)}},
        .body = body.text(),
        .timeout = options.timeout,
        .may_reach = [&calls, host = url_.host](const auto& address) {
          return calls.rule().Allows(host, address);
        }};
    if (!options.token.empty())
      request.headers.emplace_back("Authorization", "Bearer " + options.token);
    auto kept = std::make_shared<Body>(std::move(body));
    asio::post(calls.io(), [self = shared_from_this(), &calls, kept, is_end,
                            request = std::move(request)]() mutable {
      http_client::Send(calls.io(), std::move(request),
                        [self, &calls, kept, is_end](const Result<http_client::Answer>& answer) {
                          self->OnAnswer(calls, *kept, is_end, answer);
                        });
    });
  }

  // On the thread of the calls.
  void OnAnswer(WebhookCalls& calls, Body& body, bool is_end,
                const Result<http_client::Answer>& answer) {
    const std::lock_guard lock(mutex_);
    const WebhookOptions& options = calls.options();
    const bool is_refused = answer.status().code() == StatusCode::kPermissionDenied;
    const bool is_taken = answer.ok() && answer->status < 400;
    const bool may_retry = !is_refused && (!answer.ok() || IsWorthAnotherTry(answer->status));
    if (is_end && may_retry && ++tries_ < options.max_tries)
      return RetryLocked(calls, std::move(body));
    if (!is_taken) {
      logging::Warning("a webhook was not taken",
                       {{"host", url_.host},
                        {"completed", is_end},
                        {"reason", answer.ok() ? "status " + std::to_string(answer->status)
                                               : answer.status().message()}});
    }
    if (IsMemoryDue()) ReturnFreeMemory();
    is_calling_ = false;
    next_ = SteadyClock::now() + options.interval;
    if (end_) CallLocked(calls, *std::exchange(end_, std::nullopt), /*is_end=*/true);
  }

  // At once after the first, then later and later.
  void RetryLocked(WebhookCalls& calls, Body body) {
    const WebhookOptions& options = calls.options();
    const auto wait = tries_ == 1 ? std::chrono::milliseconds(0)
                                  : std::min(options.backoff * (1 << std::min(tries_ - 1, 20)),
                                             options.max_backoff);
    auto timer = std::make_shared<asio::steady_timer>(calls.io(), wait);
    auto kept = std::make_shared<Body>(std::move(body));
    timer->async_wait([self = shared_from_this(), &calls, kept, timer](const auto& ec) {
      if (ec) return;
      const std::lock_guard lock(self->mutex_);
      self->CallLocked(calls, std::move(*kept), /*is_end=*/true);
    });
  }

  const std::weak_ptr<WebhookCalls> calls_;
  const http_client::Url url_;
  const Events events_;
  std::mutex mutex_;
  bool is_calling_ = false;
  SteadyClock::time_point next_{};
  int tries_ = 0;
  std::optional<Body> end_;  // waits for the call that is under way
};

}  // namespace

Result<std::unique_ptr<WebhookCaller>> WebhookCaller::Start(const WebhookOptions& options) {
  ASSIGN_OR_RETURN(WebhookRule rule, WebhookRule::Parse(options.allowed));
  return std::unique_ptr<WebhookCaller>(
      new WebhookCaller(std::make_shared<WebhookCalls>(options, std::move(rule))));
}

WebhookCaller::~WebhookCaller() { calls_->Stop(); }

Result<std::shared_ptr<Webhook>> WebhookCaller::Open(const std::string& url, Events events) {
  ASSIGN_OR_RETURN(http_client::Url parsed, http_client::ParseUrl(url));
  if (!calls_->rule().MayAllow(parsed.host)) {
    return Status(StatusCode::kPermissionDenied,
                  "webhook: the server may not call '" + parsed.host +
                      "'; its operator allows hosts by --cog-webhook-allow");
  }
  return std::shared_ptr<Webhook>(
      std::make_shared<CalledWebhook>(calls_, std::move(parsed), events));
}

void WebhookCaller::Drain(std::chrono::milliseconds budget) { calls_->Drain(budget); }

}  // namespace inflight::cog

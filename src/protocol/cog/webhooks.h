// SPDX-License-Identifier: Apache-2.0
// Calls of the webhooks that predictions name (docs/reference/protocol/cog.md, "Webhooks").
//
// A webhook is called for one event at a time, in order. Of what happens while a call is under way,
// or within `interval` of the last one, nothing is sent but the end, which is sent in any case and
// tried again. Memory is bounded: of each webhook there are at most two bodies, and of all together
// max_bytes; what goes beyond is left out, with a line in the log.
//
// Threads: all methods are thread-safe; none blocks but Drain and the destructor. The calls run on
// one thread of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "protocol/cog/prediction_request.h"
#include "protocol/cog/webhook_rule.h"

namespace inflight::cog {

struct WebhookOptions {
  std::vector<std::string> allowed;           // --cog-webhook-allow
  std::string token;                          // WEBHOOK_AUTH_TOKEN: sent as a bearer's; empty: none
  std::chrono::milliseconds interval{500};    // COG_THROTTLE_RESPONSE_INTERVAL
  std::chrono::milliseconds timeout{10'000};  // of one call
  int max_tries = 13;                         // of the end
  std::chrono::milliseconds backoff{100};     // doubled with each try from the second on
  std::chrono::milliseconds max_backoff{120'000};
  size_t max_bytes = size_t{64} << 20;
};

class WebhookCalls;

// Of one prediction. May outlive the caller, and then does nothing.
class Webhook {
 public:
  virtual ~Webhook() = default;
  // `body` makes the prediction object; it is called where it is to be sent, and before Send
  // returns.
  virtual void Send(Event event, const std::function<std::string()>& body) = 0;
};

class WebhookCaller {
 public:
  // kInvalidArgument names an option that is wrong.
  static Result<std::unique_ptr<WebhookCaller>> Start(const WebhookOptions& options);
  ~WebhookCaller();

  // kPermissionDenied: its host may not be called.
  Result<std::shared_ptr<Webhook>> Open(const std::string& url, Events events);
  // Waits until all that was sent is delivered or given up, at most so long.
  void Drain(std::chrono::milliseconds budget);

 private:
  explicit WebhookCaller(std::shared_ptr<WebhookCalls> calls) : calls_(std::move(calls)) {}

  const std::shared_ptr<WebhookCalls> calls_;
};

}  // namespace inflight::cog

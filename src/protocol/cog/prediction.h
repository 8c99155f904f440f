// SPDX-License-Identifier: Apache-2.0
// One prediction from its start to its end: what the model answers, the object that says it, and
// whoever waits for it: an answer, streams of events, a webhook.
//
//   processing -> succeeded | failed | canceled
//
// Threads: all methods are thread-safe; none blocks.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "protocol/cog/prediction_request.h"
#include "protocol/cog/webhooks.h"
#include "protocol/http_listener/http_message.h"
#include "serving/core/request.h"

namespace inflight::cog {

struct PredictionStart {
  PredictionRequest request;
  std::shared_ptr<Webhook> webhook;  // null: none
  std::string prompt;                // formatted
  int64_t seed = 0;
  bool logs_performance = false;
  bool ends_unwatched = false;                   // it is canceled when nobody waits for it any more
  std::shared_ptr<serving::CancelToken> cancel;  // of its request
  MemoryCharge charge;           // for what of this it holds; grows by what the model answers
  std::function<void()> on_end;  // called once
};

class Prediction : public std::enable_shared_from_this<Prediction> {
 public:
  explicit Prediction(PredictionStart start);

  // Before the model is asked.
  void Begin();
  // What the model answers, in order. `has_prompt`: the text begins with the prompt.
  void OnResponse(const serving::Response& response, bool has_prompt);
  // Ends it where the model was not asked.
  void Fail(const std::string& error);

  void Cancel();

  // The object, once it has ended.
  void AnswerAtEnd(const std::shared_ptr<http_listener::HttpResponder>& responder);
  // Events: those that were, then those that come.
  void Stream(const std::shared_ptr<http_listener::HttpResponder>& responder);

  std::string ToJson() const;
  const std::optional<std::string>& id() const { return start_.request.id; }

 private:
  enum class State { kProcessing, kSucceeded, kFailed, kCanceled };
  // kOnlySet leaves out what cog never set, as its webhooks do.
  enum class Form { kWhole, kOnlySet };
  using Time = std::chrono::sys_time<std::chrono::microseconds>;

  bool has_ended() const { return state_ != State::kProcessing; }
  void Watch(const std::shared_ptr<http_listener::HttpResponder>& responder);

  // With mutex_ held.
  std::string Write(Form form) const;
  void AppendOutput(std::string text);
  void AppendLogs(Time now);
  void End(State state, std::string error);
  void CallWebhook(Event event);
  void SendEvent(std::string_view name, const std::string& json);
  std::string StartEvent() const;
  std::string MetricEvent(std::string_view name, int64_t value) const;

  PredictionStart start_;
  const size_t asked_bytes_;  // that start_.charge is for, beside the output
  const Time started_at_;
  std::atomic<bool> is_canceled_{false};
  std::atomic<int> num_watchers_{0};

  mutable std::mutex mutex_;
  State state_ = State::kProcessing;
  bool has_output_ = false;  // the model has said something
  std::vector<std::string> output_;
  size_t text_bytes_ = 0;
  std::string logs_;
  std::string error_;
  std::optional<Time> completed_at_;
  std::optional<Time> first_at_;  // output
  int64_t num_responses_ = 0;
  std::optional<int64_t> num_input_tokens_;
  std::optional<int64_t> num_output_tokens_;
  std::vector<std::shared_ptr<http_listener::HttpResponder>> answers_;
  std::vector<std::shared_ptr<http_listener::HttpResponder>> streams_;
};

}  // namespace inflight::cog

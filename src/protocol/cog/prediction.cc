// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/prediction.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "json/json_writer.h"
#include "protocol/cog/predictor.h"
#include "protocol/cog/timestamp.h"
#include "protocol/http_listener/event_stream.h"
#include "protocol/kserve/http/response.h"

namespace inflight::cog {
namespace {

using http_listener::HttpResponder;

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

double SecondsBetween(std::chrono::sys_time<std::chrono::microseconds> from,
                      std::chrono::sys_time<std::chrono::microseconds> to) {
  return std::chrono::duration<double>(to - from).count();
}

// What no text of the tokenizer's is: the rest of a character that was cut.
std::string WithoutReplacements(std::string text) {
  for (size_t at = 0; (at = text.find(kReplacementCharacter, at)) != std::string::npos;)
    text.erase(at, kReplacementCharacter.size());
  return text;
}

std::string TextOutput(const serving::Response& response) {
  for (const serving::Tensor& output : response.outputs) {
    if (output.name != kTextOutput) continue;
    const auto texts = output.Strings();
    if (texts.ok() && !texts->empty()) return std::string(texts->front());
  }
  return {};
}

std::optional<int32_t> CountOutput(const serving::Response& response, std::string_view name) {
  for (const serving::Tensor& output : response.outputs) {
    int32_t value = 0;
    if (output.name != name || output.data.size() < sizeof(value)) continue;
    std::memcpy(&value, output.data.data(), sizeof(value));
    return value;
  }
  return std::nullopt;
}

std::string OutputEvent(const std::string& text, size_t index) {
  std::string json;
  json::Writer(json).BeginObject().Key("chunk").String(text).Key("index").Uint(index).EndObject();
  return json;
}

std::string LogEvent(const std::string& text) {
  std::string json;
  json::Writer(json)
      .BeginObject()
      .Key("source")
      .String("stdout")
      .Key("data")
      .String(text)
      .EndObject();
  return json;
}

void WriteTime(const std::optional<std::chrono::sys_time<std::chrono::microseconds>>& time,
               json::Writer& out) {
  time ? out.String(IsoFormat(*time)) : out.Null();
}

}  // namespace

Prediction::Prediction(PredictionStart start)
    : start_(std::move(start)), asked_bytes_(start_.charge.bytes()), started_at_(WallClock()) {}

void Prediction::Begin() {
  const std::lock_guard lock(mutex_);
  CallWebhook(Event::kStart);
}

void Prediction::OnResponse(const serving::Response& response, bool has_prompt) {
  std::function<void()> on_end;
  {
    const std::lock_guard lock(mutex_);
    if (has_ended()) return;
    if (response.status.ok()) {
      has_output_ = true;
      if (!response.outputs.empty()) ++num_responses_;
      if (const auto count = CountOutput(response, "num_input_tokens")) num_input_tokens_ = *count;
      if (const auto count = CountOutput(response, "num_output_tokens"))
        num_output_tokens_ = num_output_tokens_.value_or(0) + *count;
      std::string text = TextOutput(response);
      if (has_prompt && text.starts_with(start_.prompt)) text.erase(0, start_.prompt.size());
      if (text = WithoutReplacements(std::move(text)); !text.empty()) AppendOutput(std::move(text));
    }
    const bool fails = !response.status.ok() && !is_canceled_;
    if (fails) {
      End(State::kFailed, ModelErrorText(response.status));
    } else if (response.is_final) {
      End(is_canceled_ ? State::kCanceled : State::kSucceeded, {});
    }
    if (has_ended()) on_end = std::exchange(start_.on_end, nullptr);
  }
  if (on_end) on_end();
}

void Prediction::Fail(const std::string& error) {
  std::function<void()> on_end;
  {
    const std::lock_guard lock(mutex_);
    if (has_ended()) return;
    has_output_ = true;
    End(State::kFailed, error);
    on_end = std::exchange(start_.on_end, nullptr);
  }
  if (on_end) on_end();
}

void Prediction::Cancel() {
  is_canceled_ = true;
  start_.cancel->Cancel();
}

void Prediction::Watch(const std::shared_ptr<HttpResponder>& responder) {
  ++num_watchers_;
  responder->OnDisconnect([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (--self->num_watchers_ == 0 && self->start_.ends_unwatched) self->Cancel();
  });
}

void Prediction::AnswerAtEnd(const std::shared_ptr<HttpResponder>& responder) {
  Watch(responder);
  const std::lock_guard lock(mutex_);
  if (!has_ended()) return answers_.push_back(responder);
  responder->Send(kserve_http::Answer(200, kserve_http::kJson, Write(Form::kWhole)));
}

void Prediction::Stream(const std::shared_ptr<HttpResponder>& responder) {
  Watch(responder);
  const std::lock_guard lock(mutex_);
  responder->StartStream(200,
                         {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}});
  // In one chunk: who joins late has not read slowly.
  std::string events;
  http_listener::AppendEvent(events, "start", StartEvent());
  for (size_t i = 0; i < output_.size(); ++i)
    http_listener::AppendEvent(events, "output", OutputEvent(output_[i], i));
  if (has_ended()) http_listener::AppendEvent(events, "completed", Write(Form::kWhole));
  responder->WriteChunk(events);
  if (!has_ended()) return streams_.push_back(responder);
  responder->Finish();
}

std::string Prediction::ToJson() const {
  const std::lock_guard lock(mutex_);
  return Write(Form::kWhole);
}

std::string Prediction::Write(Form form) const {
  static constexpr std::string_view kStateNames[] = {"processing", "succeeded", "failed",
                                                     "canceled"};
  const bool is_whole = form == Form::kWhole;
  const PredictionRequest& request = start_.request;
  std::string text;
  json::Writer out(text);
  out.BeginObject().Key("input");
  WriteInputs(request.inputs, out);
  out.Key("output");
  if (has_output_) {
    out.BeginArray();
    for (const std::string& piece : output_) out.String(piece);
    out.EndArray();
  } else {
    out.Null();
  }
  out.Key("id");
  request.id ? out.String(*request.id) : out.Null();
  if (is_whole) out.Key("version").Null();
  out.Key("created_at");
  request.created_at.empty() ? out.Null() : out.String(request.created_at);
  out.Key("started_at").String(IsoFormat(started_at_));
  if (is_whole || completed_at_) {
    out.Key("completed_at");
    WriteTime(completed_at_, out);
  }
  out.Key("logs").String(logs_);
  const bool has_failed = state_ == State::kFailed;
  if (is_whole || has_failed) {
    out.Key("error");
    has_failed ? out.String(error_) : out.Null();
  }
  out.Key("status").String(kStateNames[static_cast<size_t>(state_)]);
  if (state_ == State::kSucceeded) {
    out.Key("metrics").BeginObject().Key("predict_time");
    out.Double(SecondsBetween(started_at_, *completed_at_));
    if (num_input_tokens_) out.Key("input_token_count").Int(*num_input_tokens_);
    out.Key("output_token_count").Int(num_output_tokens_.value_or(num_responses_)).EndObject();
  } else if (is_whole) {
    out.Key("metrics").Null();
  }
  for (const auto& [name, json] : request.echoed) out.Key(name).Raw(json);
  out.EndObject();
  return text;
}

void Prediction::AppendOutput(std::string text) {
  // What it holds is charged like what its request does; beyond its bound it ends.
  text_bytes_ += text.size() + sizeof(std::string);
  if (const Status room = start_.charge.Reserve(asked_bytes_ + text_bytes_); !room.ok()) {
    End(State::kFailed, ModelErrorText(room));
    return start_.cancel->Cancel();
  }
  if (!first_at_) first_at_ = WallClock();
  output_.push_back(std::move(text));
  if (!streams_.empty()) SendEvent("output", OutputEvent(output_.back(), output_.size() - 1));
  CallWebhook(Event::kOutput);
}

void Prediction::AppendLogs(Time now) {
  if (start_.logs_performance) {
    const int64_t tokens = num_output_tokens_.value_or(num_responses_);
    const double seconds = SecondsBetween(started_at_, now);
    const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
    logs_ +=
        fmt::format("Tokens processed: {}\nServerside tokens per second: {:.2f}\n", tokens, rate);
    logs_ += fmt::format("Serverside execution time: {:.2f} seconds\n", seconds);
    if (first_at_) {
      logs_ += fmt::format("Serverside time to first token: {:.2f} seconds\n",
                           SecondsBetween(started_at_, *first_at_));
    }
  }
  logs_ += fmt::format("Random seed used: `{}`\n", start_.seed);
  logs_ += "Note: Random seed will not impact output if greedy decoding is used.\n";
  logs_ += fmt::format("Formatted prompt: `{}`", start_.prompt);
  if (!streams_.empty()) SendEvent("log", LogEvent(logs_));
  CallWebhook(Event::kLogs);
}

void Prediction::End(State state, std::string error) {
  if (has_ended()) return;
  const Time now = WallClock();
  if (state == State::kSucceeded) AppendLogs(now);
  completed_at_ = now;
  state_ = state;
  error_ = std::move(error);
  if (state == State::kSucceeded && !streams_.empty()) {
    if (num_input_tokens_)
      SendEvent("metric", MetricEvent("input_token_count", *num_input_tokens_));
    SendEvent("metric",
              MetricEvent("output_token_count", num_output_tokens_.value_or(num_responses_)));
  }
  const std::string object = Write(Form::kWhole);
  for (const auto& answer : answers_)
    answer->Send(kserve_http::Answer(200, kserve_http::kJson, object));
  SendEvent("completed", object);
  for (const auto& stream : streams_) stream->Finish();
  answers_.clear();
  streams_.clear();
  CallWebhook(Event::kCompleted);
}

void Prediction::CallWebhook(Event event) {
  if (start_.webhook) start_.webhook->Send(event, [this] { return Write(Form::kOnlySet); });
}

void Prediction::SendEvent(std::string_view name, const std::string& json) {
  if (streams_.empty()) return;
  std::string event;
  http_listener::AppendEvent(event, name, json);
  for (const auto& stream : streams_) stream->WriteChunk(event);
}

std::string Prediction::StartEvent() const {
  std::string json;
  json::Writer out(json);
  out.BeginObject().Key("id");
  id() ? out.String(*id()) : out.Null();
  out.Key("status").String("processing").EndObject();
  return json;
}

std::string Prediction::MetricEvent(std::string_view name, int64_t value) const {
  std::string json;
  json::Writer(json)
      .BeginObject()
      .Key("name")
      .String(name)
      .Key("value")
      .Int(value)
      .Key("mode")
      .String("replace")
      .EndObject();
  return json;
}

}  // namespace inflight::cog

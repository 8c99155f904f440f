// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/prediction_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>

#include "protocol/cog/timestamp.h"
#include "protocol/http_client/http_client.h"

namespace inflight::cog {
namespace {

using json::Value;
using Kind = Value::Kind;

constexpr std::pair<std::string_view, Event> kEventNames[] = {{"start", Event::kStart},
                                                              {"output", Event::kOutput},
                                                              {"logs", Event::kLogs},
                                                              {"completed", Event::kCompleted}};
constexpr std::string_view kAllEventsJson = R"(["start","output","logs","completed"])";

bool IsNull(const std::optional<Value>& value) { return !value || value->kind() == Kind::kNull; }

// Takes the body apart, member by member.
class BodyReader {
 public:
  BodyReader(const InputDefaults& defaults, std::vector<FieldError>& errors)
      : defaults_(defaults), errors_(errors) {}

  PredictionRequest Read(const Value& root) {
    const auto [input, id, created_at, prefix, webhook, filter] = root.Pick<6>(
        {"input", "id", "created_at", "output_file_prefix", "webhook", "webhook_events_filter"});
    ReadInput(input);
    if (!IsNull(id)) {
      request_.id = TextOf(*id);
      if (!request_.id) Refuse({"id"}, "str type expected", "type_error.str");
    }
    if (!IsNull(created_at)) ReadTime(*created_at);
    ReadPrefix(prefix);
    if (!IsNull(webhook)) ReadWebhook(*webhook);
    Echo("webhook", IsNull(webhook) ? "null" : webhook->text());
    if (!IsNull(filter)) ReadFilter(*filter);
    Echo("webhook_events_filter", filter ? filter->text() : kAllEventsJson);
    EchoOthers(root);
    return std::move(request_);
  }

 private:
  void Refuse(std::vector<std::string> location, std::string message, std::string_view type,
              std::string context = {}) {
    errors_.push_back({std::move(location), std::move(message), type, std::move(context)});
  }
  void Echo(std::string_view name, std::string_view json) {
    request_.echoed.emplace_back(name, json::OnOneLine(json));
  }

  // One that is missing is an empty one.
  void ReadInput(const std::optional<Value>& input) {
    static const Value kEmpty = *Value::Parse("{}");
    if (!IsNull(input) && input->kind() != Kind::kObject)
      return Refuse({"input"}, "value is not a valid dict", "type_error.dict");
    request_.inputs = ParseInputs(IsNull(input) ? kEmpty : *input, defaults_, errors_);
  }

  void ReadPrefix(const std::optional<Value>& value) {
    std::string json = "null";
    if (!IsNull(value)) {
      const auto text = TextOf(*value);
      if (!text) return Refuse({"output_file_prefix"}, "str type expected", "type_error.str");
      json.clear();
      json::AppendString(json, *text);
    }
    Echo("output_file_prefix", json);
  }

  void ReadTime(const Value& value) {
    if (auto time = NormalizeTime(value)) {
      request_.created_at = *std::move(time);
    } else if (value.kind() == Kind::kString || value.kind() == Kind::kNumber) {
      Refuse({"created_at"}, "invalid datetime format", "value_error.datetime");
    } else {
      Refuse({"created_at"}, "invalid type; expected datetime, string, bytes, int or float",
             "type_error");
    }
  }

  void ReadWebhook(const Value& value) {
    constexpr size_t kMaxUrlBytes = 65536;
    const auto text = TextOf(value);
    if (!text) return Refuse({"webhook"}, "str type expected", "type_error.str");
    if (text->empty()) {
      return Refuse({"webhook"}, "ensure this value has at least 1 characters",
                    "value_error.any_str.min_length", R"({"limit_value":1})");
    }
    if (text->size() > kMaxUrlBytes) {
      return Refuse({"webhook"}, "ensure this value has at most 65536 characters",
                    "value_error.any_str.max_length", R"({"limit_value":65536})");
    }
    const size_t scheme = text->find("://");
    if (scheme == std::string::npos || scheme == 0)
      return Refuse({"webhook"}, "invalid or missing URL scheme", "value_error.url.scheme");
    if (!text->starts_with("http://") && !text->starts_with("https://")) {
      return Refuse({"webhook"}, "URL scheme not permitted", "value_error.url.scheme",
                    R"({"allowed_schemes":["http","https"]})");
    }
    if (!http_client::ParseUrl(*text).ok())
      return Refuse({"webhook"}, "URL host invalid", "value_error.url.host");
    request_.webhook = *text;
  }

  // An empty list is all events.
  void ReadFilter(const Value& value) {
    Events events = 0;
    size_t place = 0;
    const Status walked = value.ForEachElement([&](Value element) {
      const auto name = element.AsString();
      const auto found = std::ranges::find_if(
          kEventNames, [&](const auto& known) { return name.ok() && known.first == *name; });
      if (found == std::end(kEventNames)) {
        Refuse({"webhook_events_filter", "#" + std::to_string(place)},
               "value is not a valid enumeration member; permitted: 'start', 'output', 'logs', "
               "'completed'",
               "type_error.enum", R"({"enum_values":)" + std::string(kAllEventsJson) + '}');
      } else {
        events |= static_cast<Events>(found->second);
      }
      ++place;
      return Status::Ok();
    });
    if (!walked.ok())
      Refuse({"webhook_events_filter"}, "value is not a valid list", "type_error.list");
    request_.events = events == 0 ? kAllEvents : events;
  }

  // Not those that a prediction object has of its own.
  void EchoOthers(const Value& root) {
    static constexpr std::string_view kMembers[] = {
        "input",  "id",      "created_at", "output_file_prefix", "webhook", "webhook_events_filter",
        "output", "version", "started_at", "completed_at",       "logs",    "error",
        "status", "metrics"};
    const Status walked = root.ForEachMember([&](std::string_view name, Value value) {
      if (std::ranges::find(kMembers, name) == std::end(kMembers)) Echo(name, value.text());
      return Status::Ok();
    });
    (void)walked;  // it is an object
  }

  const InputDefaults& defaults_;
  std::vector<FieldError>& errors_;
  PredictionRequest request_;
};

// Reads digits and marks from the front of a text.
class TimeText {
 public:
  explicit TimeText(std::string_view text) : text_(text) {}

  // So many digits; a fault stays.
  int Digits(size_t least, size_t most) {
    size_t count = 0;
    int value = 0;
    while (count < most && count < text_.size() && text_[count] >= '0' && text_[count] <= '9')
      value = value * 10 + (text_[count++] - '0');
    is_ok_ = is_ok_ && count >= least;
    text_.remove_prefix(count);
    return value;
  }
  bool Takes(std::string_view marks) {
    if (text_.empty() || marks.find(text_[0]) == std::string_view::npos) return false;
    mark_ = text_[0];
    text_.remove_prefix(1);
    return true;
  }
  void Needs(std::string_view marks) { is_ok_ = Takes(marks) && is_ok_; }
  char mark() const { return mark_; }
  // Digits behind a point, as microseconds; further ones are left out.
  int Microseconds() {
    const size_t before = text_.size();
    int value = Digits(1, 6);
    for (size_t count = before - text_.size(); count < 6; ++count) value *= 10;
    while (!text_.empty() && text_[0] >= '0' && text_[0] <= '9') text_.remove_prefix(1);
    return value;
  }
  bool IsDone() const { return is_ok_ && text_.empty(); }

 private:
  std::string_view text_;
  char mark_ = 0;
  bool is_ok_ = true;
};

std::optional<std::string> NormalizeText(std::string_view text) {
  TimeText in(text);
  CalendarTime time;
  time.year = in.Digits(4, 4);
  in.Needs("-");
  time.month = in.Digits(1, 2);
  in.Needs("-");
  time.day = in.Digits(1, 2);
  in.Needs("T ");
  time.hour = in.Digits(1, 2);
  in.Needs(":");
  time.minute = in.Digits(1, 2);
  if (in.Takes(":")) {
    time.second = in.Digits(1, 2);
    if (in.Takes(".")) time.microsecond = in.Microseconds();
  }
  if (in.Takes("Z")) {
    time.offset_minutes = 0;
  } else if (in.Takes("+-")) {
    const int sign = in.mark() == '-' ? -1 : 1;
    const int hours = in.Digits(2, 2);
    const int minutes = in.Takes(":") ? in.Digits(2, 2) : in.Digits(0, 2);
    if (hours >= 24 || minutes >= 60) return std::nullopt;
    time.offset_minutes = sign * (hours * 60 + minutes);
  }
  return in.IsDone() ? IsoFormat(time) : std::nullopt;
}

// Seconds, or milliseconds where so many seconds would be beyond the year 2603.
std::optional<std::string> NormalizeNumber(double number) {
  constexpr double kMostSeconds = 2e10;
  if (!std::isfinite(number)) return std::nullopt;
  while (std::fabs(number) > kMostSeconds) number /= 1000;
  return IsoFormat(std::chrono::sys_time<std::chrono::microseconds>(
      std::chrono::microseconds(std::llround(number * 1e6))));
}

}  // namespace

std::optional<std::string> NormalizeTime(const Value& value) {
  if (value.kind() == Kind::kNumber) return NormalizeNumber(*value.AsDouble());
  if (value.kind() != Kind::kString) return std::nullopt;
  const std::string text = *value.AsString();
  const auto number = Value::Parse(text);
  if (number.ok() && number->kind() == Kind::kNumber) return NormalizeNumber(*number->AsDouble());
  return NormalizeText(text);
}

PredictionRequest ParsePredictionRequest(std::string_view body, const InputDefaults& defaults,
                                         std::vector<FieldError>& errors) {
  const auto root = Value::Parse(body);
  if (!root.ok()) {
    errors.push_back({{}, root.status().message(), "value_error.jsondecode", {}});
    return {};
  }
  if (root->kind() != Kind::kObject) {
    errors.push_back({{}, "value is not a valid dict", "type_error.dict", {}});
    return {};
  }
  return BodyReader(defaults, errors).Read(*root);
}

}  // namespace inflight::cog

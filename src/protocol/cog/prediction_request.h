// SPDX-License-Identifier: Apache-2.0
// The body of POST /predictions and PUT /predictions/{id}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/cog/input_fields.h"

namespace inflight::cog {

// When a webhook is called; a set of bits.
enum class Event : uint8_t { kStart = 1, kOutput = 2, kLogs = 4, kCompleted = 8 };
using Events = uint8_t;
inline constexpr Events kAllEvents = 15;

struct PredictionRequest {
  Inputs inputs;
  std::optional<std::string> id;
  std::string created_at;  // as it is echoed; empty: not given
  std::string webhook;     // a URL; empty: none
  Events events = kAllEvents;
  // Members that are echoed as they came: what cog knows and has no use for here, and what it does
  // not know. Name, JSON.
  std::vector<std::pair<std::string, std::string>> echoed;
};

// The time in the form of datetime.isoformat() in Python, of what pydantic 1 takes for a time: ISO
// 8601, or seconds or milliseconds since 1970. Unset: it is none.
std::optional<std::string> NormalizeTime(const json::Value& value);

// Where something is wrong, `errors` says what.
PredictionRequest ParsePredictionRequest(std::string_view body, const InputDefaults& defaults,
                                         std::vector<FieldError>& errors);

}  // namespace inflight::cog

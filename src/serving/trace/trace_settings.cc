// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace_settings.h"

#include <cerrno>
#include <cstdlib>
#include <limits>

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

Status CannotParse(std::string_view name, const std::string& text) {
  return InvalidArgument("Unable to parse '" + std::string(name) + "', got: " + text);
}

Status OutOfRange(std::string_view name, const std::string& range, const std::string& text) {
  return InvalidArgument("Unable to parse '" + std::string(name) + "', value is out of range [ " +
                         range + " ], got: " + text);
}

// As C reads numbers, which Triton lets through: what follows the digits is passed over.
Result<long long> ParseNumber(std::string_view name, const std::string& text,
                              const std::string& range) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str()) return CannotParse(name, text);
  if (errno == ERANGE) return OutOfRange(name, range, text);
  return value;
}

// A negative number wraps around.
Result<uint32_t> ParseUnsigned(std::string_view name, const std::string& text) {
  constexpr auto kMax = std::numeric_limits<uint32_t>::max();
  const std::string range = "0, " + std::to_string(kMax);
  ASSIGN_OR_RETURN(const long long value, ParseNumber(name, text, range));
  if (value > kMax || value < -static_cast<long long>(kMax)) return OutOfRange(name, range, text);
  return static_cast<uint32_t>(value);
}

Result<int32_t> ParseCount(std::string_view name, const std::string& text, TraceWords words) {
  constexpr auto kMax = std::numeric_limits<int32_t>::max();
  const std::string range = "-1, " + std::to_string(kMax);
  ASSIGN_OR_RETURN(const long long value, ParseNumber(name, text, range));
  if (value > kMax) return OutOfRange(name, range, text);
  if (value < -1) {
    return InvalidArgument(
        "Unable to parse '" + std::string(name) +
        "'. Expecting value >= -1, got:" + (words == TraceWords::kGrpc ? " " : "") + text);
  }
  return static_cast<int32_t>(value);
}

// Unknown words count for nothing.
Result<TraceLevels> ParseLevels(const std::vector<std::string>& words) {
  TraceLevels levels;
  for (const std::string& word : words) {
    if (word == "OFF" && words.size() > 1) {
      return InvalidArgument("Expect only one trace level 'OFF' is specified");
    }
    levels.timestamps |= word == "TIMESTAMPS";
    levels.tensors |= word == "TENSORS";
  }
  return levels;
}

template <typename T, typename Parse>
Status ChangeNumber(std::string_view name, const std::vector<std::string>& values,
                    TraceChange<T>& change, Parse parse) {
  change = {.is_asked = true, .value = std::nullopt};
  if (values.empty()) return Status::Ok();
  if (values.size() > 1) {
    return InvalidArgument("expect only 1 value for '" + std::string(name) + "'");
  }
  ASSIGN_OR_RETURN(change.value, parse(name, values.front()));
  return Status::Ok();
}

}  // namespace

Status ChangeTraceSetting(std::string_view name, const std::vector<std::string>& values,
                          TraceWords words, TraceUpdate& update) {
  if (name == "trace_file") {
    return Unimplemented("trace file location can not be updated through network protocol");
  }
  if (name == "trace_rate") return ChangeNumber(name, values, update.rate, ParseUnsigned);
  if (name == "trace_count") {
    return ChangeNumber(name, values, update.count, [words](auto field, const std::string& text) {
      return ParseCount(field, text, words);
    });
  }
  if (name == "log_frequency") {
    return ChangeNumber(name, values, update.log_frequency, ParseUnsigned);
  }
  if (name != "trace_level") return Status::Ok();
  update.levels = {.is_asked = true, .value = std::nullopt};
  if (values.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(update.levels.value, ParseLevels(values));
  return Status::Ok();
}

void TraceOverrides::Change(const TraceUpdate& update) {
  if (update.levels.is_asked) levels = update.levels.value;
  if (update.rate.is_asked) rate = update.rate.value;
  if (update.count.is_asked) count = update.count.value;
  if (update.log_frequency.is_asked) log_frequency = update.log_frequency.value;
}

TraceSettings TraceOverrides::Over(TraceSettings behind) const {
  if (levels) behind.levels = *levels;
  if (rate) behind.rate = *rate;
  if (count) behind.count = *count;
  if (log_frequency) behind.log_frequency = *log_frequency;
  return behind;
}

std::vector<std::string> TraceLevelNames(TraceLevels levels) {
  std::vector<std::string> names;
  if (levels.timestamps) names.emplace_back("TIMESTAMPS");
  if (levels.tensors) names.emplace_back("TENSORS");
  if (names.empty()) names.emplace_back("OFF");
  return names;
}

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace_config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "base/status_macros.h"

namespace inflight::serving {
namespace {

constexpr int64_t kMaxNumber = 86400000;  // a day of milliseconds

struct Word {
  std::string text;  // whole, for errors
  std::string mode;  // "triton", "opentelemetry"; "" = of every mode
  std::string name;
  std::string value;
};

Status Unknown(const Word& word, const std::string& known) {
  return InvalidArgument("--trace-config: got '" + word.text + "', expected " + known);
}

Result<Word> Split(const std::string& text) {
  Word word{.text = text};
  const size_t equals = text.find('=');
  const size_t comma = text.find(',');
  const bool has_mode = comma < equals;
  if (has_mode) word.mode = text.substr(0, comma);
  if (equals == std::string::npos) return Unknown(word, "[<mode>,]<setting>=<value>");
  const size_t begin = has_mode ? comma + 1 : 0;
  word.name = text.substr(begin, equals - begin);
  word.value = text.substr(equals + 1);
  return word;
}

Result<int64_t> Number(const Word& word, int64_t min, int64_t max) {
  int64_t value = 0;
  const char* end = word.value.data() + word.value.size();
  const auto [at, error] = std::from_chars(word.value.data(), end, value);
  if (error == std::errc() && at == end && value >= min && value <= max) return value;
  return Unknown(word, "a number from " + std::to_string(min) + " to " + std::to_string(max));
}

Status SetLevel(const Word& word, TraceLevels& levels) {
  if (word.value == "OFF") {
    levels = {};
  } else if (word.value == "TENSORS") {
    levels.tensors = true;
  } else if (word.value == "TIMESTAMPS" || word.value == "MIN" || word.value == "MAX") {
    levels.timestamps = true;  // MIN and MAX are its former names
  } else {
    return Unknown(word, "level OFF, TIMESTAMPS or TENSORS");
  }
  return Status::Ok();
}

Status SetGeneral(const Word& word, TraceConfig& config) {
  constexpr int64_t kMaxRate = std::numeric_limits<uint32_t>::max();
  if (word.name == "level") return SetLevel(word, config.start.levels);
  if (word.name == "rate") {
    ASSIGN_OR_RETURN(const int64_t rate, Number(word, 0, kMaxRate));
    config.start.rate = static_cast<uint32_t>(rate);
    return Status::Ok();
  }
  if (word.name == "count") {
    ASSIGN_OR_RETURN(const int64_t count, Number(word, -1, std::numeric_limits<int32_t>::max()));
    config.start.count = static_cast<int32_t>(count);
    return Status::Ok();
  }
  if (word.name != "mode") return Unknown(word, "level, rate, count or mode");
  if (word.value != "triton" && word.value != "opentelemetry") {
    return Unknown(word, "mode triton or opentelemetry");
  }
  config.is_opentelemetry = word.value == "opentelemetry";
  return Status::Ok();
}

Status SetTriton(const Word& word, TraceConfig& config) {
  if (word.name == "file") {
    config.file = word.value;
    return Status::Ok();
  }
  if (word.name != "log-frequency") return Unknown(word, "triton,file or triton,log-frequency");
  ASSIGN_OR_RETURN(const int64_t frequency, Number(word, 0, std::numeric_limits<uint32_t>::max()));
  config.start.log_frequency = static_cast<uint32_t>(frequency);
  return Status::Ok();
}

// "k=v"
Status AddAttribute(const Word& word, std::string_view text, OpenTelemetryOptions& options) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return Unknown(word, "resource=<key>=<value>");
  options.resource.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  return Status::Ok();
}

Status SetOpenTelemetry(const Word& word, OpenTelemetryOptions& options) {
  if (word.name == "url") {
    const bool has_scheme = word.value.find("://") != std::string::npos;
    if (has_scheme && !word.value.starts_with("http://")) {
      return Unknown(word, "a url of http://, or one without a scheme");
    }
    options.url = (has_scheme ? "" : "http://") + word.value;
    return Status::Ok();
  }
  if (word.name == "resource") return AddAttribute(word, word.value, options);
  int64_t OpenTelemetryOptions::*number = nullptr;
  if (word.name == "bsp_max_queue_size") number = &OpenTelemetryOptions::max_queue_size;
  if (word.name == "bsp_schedule_delay") number = &OpenTelemetryOptions::schedule_delay_ms;
  if (word.name == "bsp_max_export_batch_size")
    number = &OpenTelemetryOptions::max_export_batch_size;
  if (number == nullptr) {
    return Unknown(word,
                   "opentelemetry,url, resource, bsp_max_queue_size, bsp_schedule_delay or "
                   "bsp_max_export_batch_size");
  }
  ASSIGN_OR_RETURN(options.*number, Number(word, 1, kMaxNumber));
  return Status::Ok();
}

Status ReadEnvironment(Environment environment, OpenTelemetryOptions& options) {
  options.resource.emplace_back("service.name", "triton-inference-server");
  constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"OTEL_BSP_MAX_QUEUE_SIZE", "bsp_max_queue_size"},
      {"OTEL_BSP_SCHEDULE_DELAY", "bsp_schedule_delay"},
      {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "bsp_max_export_batch_size"}};
  for (const auto& [variable, name] : kNumbers) {
    const std::string value = environment(variable);
    if (value.empty()) continue;
    RETURN_IF_ERROR(SetOpenTelemetry(
        {.text = std::string(variable) + "=" + value, .mode = {}, .name = name, .value = value},
        options));
  }
  const std::string attributes = environment("OTEL_RESOURCE_ATTRIBUTES");
  const Word word{.text = "OTEL_RESOURCE_ATTRIBUTES=" + attributes};
  std::string_view rest = attributes;
  while (!rest.empty()) {
    const size_t length = std::min(rest.find(','), rest.size());
    RETURN_IF_ERROR(AddAttribute(word, rest.substr(0, length), options));
    rest.remove_prefix(std::min(length + 1, rest.size()));
  }
  return Status::Ok();
}

}  // namespace

Result<TraceConfig> ParseTraceConfig(const std::vector<std::string>& words,
                                     Environment environment) {
  TraceConfig config;
  RETURN_IF_ERROR(ReadEnvironment(environment, config.opentelemetry));
  for (const std::string& text : words) {
    ASSIGN_OR_RETURN(const Word word, Split(text));
    if (word.mode.empty()) {
      RETURN_IF_ERROR(SetGeneral(word, config));
    } else if (word.mode == "triton") {
      RETURN_IF_ERROR(SetTriton(word, config));
    } else if (word.mode == "opentelemetry") {
      RETURN_IF_ERROR(SetOpenTelemetry(word, config.opentelemetry));
    } else {
      return Unknown(word, "a setting of triton or opentelemetry");
    }
  }
  OpenTelemetryOptions& opentelemetry = config.opentelemetry;
  if (opentelemetry.max_export_batch_size > opentelemetry.max_queue_size) {
    opentelemetry.max_export_batch_size = opentelemetry.max_queue_size;
  }
  return config;
}

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
#include "cog_options.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>

#include "base/status_macros.h"
#include "environment.h"

namespace inflight::tool {
namespace {

using config::AtLeast;
using config::Range;

// Unset where the variable is not, or empty.
template <typename T>
Result<std::optional<T>> CogNumber(const char* variable) {
  const std::string text = Environment(variable);
  if (text.empty()) return std::optional<T>();
  T value{};
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && parsed == end) return std::optional<T>(value);
  return InvalidArgument(variable, "got '" + text + "', a number is needed");
}

}  // namespace

void AddCogOptions(config::Schema<ServeOptions>& schema) {
  schema.Section("cog");
  schema.Add(
      "cog_port", [](ServeOptions& o) -> auto& { return o.cog_port; },
      "Serve the HTTP API of cog at this port, which is 5000 in cog; 0 picks a free one.",
      Range(0, 65535));
  schema.Add(
      "cog_address", [](ServeOptions& o) -> auto& { return o.cog.listener.address; },
      "Address; 0.0.0.0 in cog.");
  schema.Add(
      "cog_thread_count", [](ServeOptions& o) -> auto& { return o.cog.listener.threads; },
      "I/O threads; 0 is 1 to 4 by cores.", Range(0, 128));
  schema.Add(
      "cog_model", [](ServeOptions& o) -> auto& { return o.cog.model; },
      "Model of predictions; by default ensemble, else the only one that is ready.");
  schema.Add(
      "cog_concurrency", [](ServeOptions& o) -> auto& { return o.cog.concurrency; },
      "Predictions at a time; further ones are answered 409. cog itself has 1, cog-triton 64.",
      AtLeast(1));
  schema.Add(
      "cog_webhook_allow", [](ServeOptions& o) -> auto& { return o.cog.webhooks.allowed; },
      "Host that webhooks may call: a name, *.NAME, an address, a network as 10.1.0.0/16, or * for "
      "all. By default all but addresses of this machine and of its links.");
}

Status SetFromCogEnvironment(cog::CogOptions& options) {
  cog::InputDefaults& defaults = options.predictor.defaults;
  defaults.system_prompt = Environment("SYSTEM_PROMPT");
  defaults.stop_sequences = Environment("STOP_SEQUENCES");
  if (const std::string text = Environment("PROMPT_TEMPLATE"); !text.empty())
    defaults.prompt_template = text;
  options.predictor.logs_performance = !Environment("LOG_PERFORMANCE_METRICS").empty();
  ASSIGN_OR_RETURN(options.predictor.end_id, CogNumber<int32_t>("END_ID"));
  ASSIGN_OR_RETURN(options.predictor.pad_id, CogNumber<int32_t>("PAD_ID"));
  options.webhooks.token = Environment("WEBHOOK_AUTH_TOKEN");
  constexpr char kInterval[] = "COG_THROTTLE_RESPONSE_INTERVAL";
  constexpr double kMostSeconds = 3600;
  ASSIGN_OR_RETURN(const auto seconds, CogNumber<double>(kInterval));
  if (!seconds) return Status::Ok();
  if (!(*seconds >= 0 && *seconds <= kMostSeconds))
    return InvalidArgument(kInterval, "got " + Environment(kInterval) + ", must be in [0, 3600]");
  options.webhooks.interval = std::chrono::milliseconds(std::llround(*seconds * 1000));
  return Status::Ok();
}

}  // namespace inflight::tool

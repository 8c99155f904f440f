// SPDX-License-Identifier: Apache-2.0
#include "protocol/triton_backend/backend_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::triton_backend {
namespace {

// Triton gives these to every backend, whether it was asked to or not.
constexpr std::array<std::string_view, 5> kOfTheServer = {
    "auto-complete-config", "backend-directory", "default-max-batch-size", "min-compute-capability",
    "execution-policy"};

Result<int> ParseThreads(const std::string& text) {
  constexpr int kMax = 4096;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads < 0 || threads > kMax) {
    return InvalidArgument(
        "threads",
        "got \"" + text + "\", must be from 0 (the usable cores) to " + std::to_string(kMax));
  }
  return threads;
}

}  // namespace

Result<OpenOptions> ParseBackendOptions(std::string_view json) {
  OpenOptions options;
  const auto parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return InvalidArgument("the backend's configuration is not a JSON object: " +
                           std::string(json.substr(0, 200)));
  }
  const auto command_line = parsed.find("cmdline");
  if (command_line == parsed.end()) return options;
  for (const auto& [key, value] : command_line->items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (key == "device") {
      options.device = text;
    } else if (key == "dtype") {
      options.dtype = text;
    } else if (key == "threads") {
      ASSIGN_OR_RETURN(options.num_threads, ParseThreads(text));
    } else if (std::find(kOfTheServer.begin(), kOfTheServer.end(), key) == kOfTheServer.end()) {
      logging::Warning(
          "a key of --backend-config has no effect, the keys are device, dtype and threads",
          {{"key", key}, {"value", text}});
    }
  }
  return options;
}

}  // namespace inflight::triton_backend

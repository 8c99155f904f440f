// SPDX-License-Identifier: Apache-2.0
#include "start_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/log_table.h"
#include "base/text_table.h"
#include "inflight/version.h"

namespace inflight::tool {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr const char* kBackends[] = {"conformance", "python", "tensorrtllm"};

std::string ConfigOf(const BackendSettings& settings, const std::string& backend) {
  nlohmann::json config = nlohmann::json::object();
  for (const std::string& name : {std::string(), backend}) {
    const auto found = settings.find(name);
    if (found != settings.end()) config.update(nlohmann::json(found->second));
  }
  return config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const char* NameOf(serving::ControlMode mode) {
  switch (mode) {
    case serving::ControlMode::kNone:
      return "MODE_NONE";
    case serving::ControlMode::kPoll:
      return "MODE_POLL";
    case serving::ControlMode::kExplicit:
      return "MODE_EXPLICIT";
  }
  return "MODE_NONE";
}

}  // namespace

Result<BackendSettings> ParseBackendConfig(const std::vector<std::string>& words) {
  BackendSettings settings;
  for (const std::string& word : words) {
    const size_t comma = word.find(',');
    const size_t equals = comma == std::string::npos ? comma : word.find('=', comma);
    if (equals == std::string::npos || equals == comma + 1) {
      return InvalidArgument("--backend-config: got '" + word +
                             "', needs <backend>,<setting>=<value>");
    }
    settings[word.substr(0, comma)][word.substr(comma + 1, equals - comma - 1)] =
        word.substr(equals + 1);
  }
  return settings;
}

void LogBanner() { logging::Info(fmt::format("inflight {}: an LLM inference server", kVersion)); }

void LogBackends(const BackendSettings& settings) {
  Rows rows = {{"Backend", "Path", "Config"}};
  for (const char* backend : kBackends)
    rows.push_back({backend, "built in", ConfigOf(settings, backend)});
  logging::Table("repository agents", TextTable({{"Repository Agent", "Path"}}));
  logging::Table("backends", TextTable(rows));
}

void LogOptions(const ServeOptions& options, const serving::ServerMetadata& metadata) {
  const serving::ServerOptions& server = options.server;
  Rows rows = {{"Option", "Value"},
               {"server_id", metadata.name},
               {"server_version", metadata.version},
               {"server_extensions", fmt::format("{}", fmt::join(metadata.extensions, " "))}};
  for (const auto& [name, values] : {std::pair("model_repository_path", &server.model_repositories),
                                     std::pair("model_directory", &server.model_dirs),
                                     std::pair("startup_models_", &server.load_models)}) {
    for (size_t i = 0; i < values->size(); ++i)
      rows.push_back({fmt::format("{}[{}]", name, i), (*values)[i]});
  }
  rows.push_back({"model_control_mode", NameOf(server.control_mode)});
  rows.push_back({"device", server.open.device});
  rows.push_back({"strict_readiness", server.strict_readiness ? "1" : "0"});
  rows.push_back({"exit_timeout", std::to_string(options.exit_timeout_secs)});
  rows.push_back({"cache_enabled", server.response_cache ? "1" : "0"});
  logging::Table("options", TextTable(rows));
}

}  // namespace inflight::tool

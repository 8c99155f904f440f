// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/prepare_model.h"

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/configuration/model_config.h"
#include "serving/core/response_cache.h"
#include "serving/instances/warm_up.h"
#include "serving/repository/validate_config.h"
#include "serving/tensors/model_file.h"

namespace inflight::serving {
namespace {

constexpr std::string_view kFirstResponse = "nv_inference_first_response_histogram_ms";

// One label a line, in files that outputs name.
Result<std::map<std::string, std::vector<std::string>>> ReadLabels(
    const ::inference::ModelConfig& config, const std::filesystem::path& dir) {
  constexpr uint64_t kMaxBytes = 64 << 20;
  std::map<std::string, std::vector<std::string>> labels;
  for (const auto& output : config.output()) {
    if (output.label_filename().empty()) continue;
    ASSIGN_OR_RETURN(
        const std::string text,
        ReadModelFile(dir, "directory", output.label_filename(), "label_filename", kMaxBytes));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) labels[output.name()].push_back(line);
  }
  return labels;
}

// The buckets of the server, unless the model's configuration has its own.
std::vector<double> FirstResponseBuckets(const ::inference::ModelConfig& config,
                                         const std::vector<double>& of_server) {
  if (of_server.empty()) return {};  // not kept
  for (const auto& control : config.model_metrics().metric_control()) {
    if (control.metric_identifier().family() != kFirstResponse) continue;
    const auto& buckets = control.histogram_options().buckets();
    return {buckets.begin(), buckets.end()};
  }
  return of_server;
}

}  // namespace

Status PrepareModel(const Candidate& candidate, const ServerOptions& options,
                    const std::string& name_space, Model& model) {
  const ::inference::ModelConfig& config = model.config();
  ASSIGN_OR_RETURN(auto labels, ReadLabels(candidate.parsed.config, candidate.dir));
  model.SetLabels(std::move(labels));
  model.SetNameSpace(name_space);
  if (config.response_cache().enable()) {
    if (model.decoupled()) return NoCacheOf(model.name(), "'decoupled' transaction policy");
    if (options.response_cache == nullptr) {
      logging::Warning("response_cache has no effect: the server has no cache (--cache-config)",
                       {{"model", model.name()}});
    } else {
      model.SetResponseCache(options.response_cache, options.response_cache->NewPrefix());
    }
  }
  StatisticsOptions statistics = options.statistics;
  statistics.first_response_ms = FirstResponseBuckets(config, statistics.first_response_ms);
  statistics.has_cache = model.response_cache() != nullptr;
  model.statistics().Configure(statistics);
  return WarmUp(model, candidate.dir);
}

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
// A loaded version of a model, whatever runs it: LLM, preprocessing, postprocessing, ensemble, test
// models.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/core/request.h"
#include "serving/statistics/statistics.h"

namespace inflight::serving {

// Memory that a model holds, as the statistics endpoint shows it.
struct MemoryUsage {
  std::string_view type;  // "CPU", "CPU_PINNED" or "GPU"
  int64_t id = 0;         // of the device
  uint64_t bytes = 0;
};

class ResponseCache;
struct TextModel;  // generation.h

using InstanceGroups = google::protobuf::RepeatedPtrField<::inference::ModelInstanceGroup>;
// Executes the samples of `model_warmup` on one instance; `infer` brings it a request.
using WarmUpInstance =
    std::function<Status(const std::function<void(Request, ResponseHandler)>& infer)>;

class Model {
 public:
  virtual ~Model() = default;

  const std::string& name() const { return config_.name(); }
  const std::string& version() const { return version_; }  // "1"
  // Normalised and completed (docs/reference/repositories.md), but without the instance groups,
  // which may change while the model runs.
  const ::inference::ModelConfig& config() const { return config_; }
  // With them as they are now: what the config endpoint shows.
  ::inference::ModelConfig complete_config() const;
  // The repository that it is of; empty unless repositories are namespaces (repositories.h).
  const std::string& name_space() const { return name_space_; }
  void SetNameSpace(std::string name_space) { name_space_ = std::move(name_space); }  // at its load
  bool decoupled() const { return config_.model_transaction_policy().decoupled(); }
  ModelStatistics& statistics() { return statistics_; }

  // Names of an output's classes, by index; empty where its configuration has no label file.
  const std::vector<std::string>& labels(const std::string& output) const;
  // Before the first request.
  void SetLabels(std::map<std::string, std::vector<std::string>> labels) {
    labels_ = std::move(labels);
  }

  // Null where responses are not cached.
  const std::shared_ptr<ResponseCache>& response_cache() const { return response_cache_; }
  const std::string& cache_prefix() const { return cache_prefix_; }
  // Before the first request. `prefix`: ResponseCache::NewPrefix.
  void SetResponseCache(std::shared_ptr<ResponseCache> cache, std::string prefix) {
    response_cache_ = std::move(cache);
    cache_prefix_ = std::move(prefix);
  }

  // How long its load took, warm-up included. Set before the first request.
  double load_seconds() const { return load_seconds_; }
  void SetLoadSeconds(double seconds) { load_seconds_ = seconds; }

  // Requests that run at once, each on an instance of its own.
  virtual int num_instances() const { return 1; }
  // Takes on other instance groups, of a normalised configuration, while requests wait and run:
  // none of them notices. `warm_up` is for each instance that is new. On an error all is as it was.
  // Here for models without instances, which only show the groups.
  virtual Status SetInstanceGroups(const InstanceGroups& groups, const WarmUpInstance& warm_up);

  // Whether calls that carry exactly one response (`/infer`, ModelInfer) may use this model. Not
  // decoupled ones, except those that answer once unless the request itself asks to stream.
  virtual bool allows_single_response_calls() const { return !decoupled(); }

  // Whether a thread that sends its responses may be held up to its client's pace.
  virtual bool waits_for_clients() const { return false; }

  // Whether the request ends others and asks for nothing itself: it needs no place among those of
  // its client.
  virtual bool OnlyStops(const Request&) const { return false; }

  virtual bool ready() const { return true; }
  // Of a model that is not; empty where there is nothing to say.
  virtual std::string_view why_not_ready() const { return {}; }
  // Null: it takes no request by Request::generation.
  virtual std::shared_ptr<const TextModel> text() const { return nullptr; }
  virtual std::vector<MemoryUsage> memory_usage() const { return {}; }

  // Starts the request; every response, errors included, goes to the handler (exactly one is
  // final), and until then the caller keeps the model. Never throws, never blocks for long.
  virtual void Infer(Request request, ResponseHandler handler) = 0;

 protected:
  Model(::inference::ModelConfig config, std::string version)
      : config_(std::move(config)), version_(std::move(version)) {
    instance_groups_.Swap(config_.mutable_instance_group());
  }

 private:
  ::inference::ModelConfig config_;
  std::string version_;
  std::string name_space_;
  ModelStatistics statistics_;
  std::map<std::string, std::vector<std::string>> labels_;  // by output
  std::shared_ptr<ResponseCache> response_cache_;
  std::string cache_prefix_;
  double load_seconds_ = 0;
  mutable std::mutex groups_mutex_;
  InstanceGroups instance_groups_;
};

inline ::inference::ModelConfig Model::complete_config() const {
  ::inference::ModelConfig config = config_;
  const std::lock_guard lock(groups_mutex_);
  *config.mutable_instance_group() = instance_groups_;
  return config;
}

inline Status Model::SetInstanceGroups(const InstanceGroups& groups, const WarmUpInstance&) {
  const std::lock_guard lock(groups_mutex_);
  instance_groups_ = groups;
  return Status::Ok();
}

inline const std::vector<std::string>& Model::labels(const std::string& output) const {
  static const std::vector<std::string> kNone;
  const auto found = labels_.find(output);
  return found == labels_.end() ? kNone : found->second;
}

}  // namespace inflight::serving

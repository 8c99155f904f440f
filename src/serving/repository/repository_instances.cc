// SPDX-License-Identifier: Apache-2.0
// Repository: a load that changes nothing but instance groups (docs/reference/repositories.md,
// "Other instance groups"). The copy that runs takes them on, with its requests, its statistics and
// its cached responses.
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/configuration/model_config.h"
#include "serving/instances/warm_up.h"
#include "serving/repository/repository.h"

namespace inflight::serving {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::inference::ModelConfig;
using ::inference::ModelInstanceGroup;

ModelConfig Normalized(ModelConfig config) {
  NormalizeModelConfig(config);
  return config;
}

ModelConfig OnlyGroups(const ModelConfig& config) {
  ModelConfig groups;
  *groups.mutable_instance_group() = config.instance_group();
  return groups;
}

// Fields that a template left open, but for those of instance groups.
std::vector<std::string> OpenFields(const ParsedModelConfig& parsed) {
  std::vector<std::string> fields = parsed.unfilled;
  std::erase_if(fields, [](const std::string& field) {
    return ModelInstanceGroup::descriptor()->FindFieldByName(field) != nullptr;
  });
  return fields;
}

Status SetGroups(Model& model, const InstanceGroups& groups, const WarmUpInstance& warm_up) {
  try {
    return model.SetInstanceGroups(groups, warm_up);
  } catch (const std::bad_alloc& e) {
    return OutOfMemory(e.what());
  } catch (const std::exception& e) {  // threads
    return Internal(e.what());
  }
}

}  // namespace

// The configuration is compared as it was given, and as the config endpoint shows it: clients take
// it from there and bring it back with other groups. Without other groups the load is asked for
// something that cannot be seen here, as an engine elsewhere.
bool Repository::ChangesOnlyInstances(const Candidate& candidate) const {
  const auto found = sources_.find(candidate.parsed.config.name());
  if (found == sources_.end()) return false;
  const Source& source = found->second;
  if (source.dir != candidate.dir || source.data_files != candidate.data_files) return false;

  ModelConfig now = Normalized(candidate.parsed.config);
  ModelConfig before = Normalized(source.parsed.config);
  if (MessageDifferencer::Equals(OnlyGroups(now), OnlyGroups(before))) return false;
  now.clear_instance_group();
  before.clear_instance_group();
  const std::vector<std::string> open_fields = OpenFields(candidate.parsed);
  const bool is_as_given =
      MessageDifferencer::Equals(now, before) && open_fields == OpenFields(source.parsed);
  std::vector<std::string> versions;
  for (const ModelEntry& entry : entries_) {
    if (entry.name != now.name() || entry.model == nullptr) continue;
    const bool is_as_shown =
        open_fields.empty() && MessageDifferencer::Equals(now, entry.model->config());
    if (!is_as_given && !is_as_shown) return false;
    versions.push_back(entry.version);
  }
  return versions == candidate.versions && !versions.empty();
}

Status Repository::ChangeInstances(const Candidate& candidate) {
  const ModelConfig config = Normalized(candidate.parsed.config);
  RETURN_IF_ERROR(CheckFields(candidate.kind, candidate.parsed));
  if (candidate.kind == ModelKind::kConformance) RETURN_IF_ERROR(loader_.CheckInstances(config));
  std::vector<std::shared_ptr<Model>> models;
  for (const ModelEntry& entry : entries_) {
    if (entry.name == config.name() && entry.model != nullptr) models.push_back(entry.model);
  }
  const Unlocked unlocked(control_mutex_);
  const InstanceGroups before = models.front()->complete_config().instance_group();
  const auto set = [&](Model& model, const InstanceGroups& groups) {
    return SetGroups(model, groups,
                     [&](const auto& infer) { return WarmUpOne(model, candidate.dir, infer); });
  };
  for (size_t i = 0; i < models.size(); ++i) {
    Status status = set(*models[i], config.instance_group());
    if (status.ok()) {
      logging::Info("instance groups of the model changed",
                    {{"model", config.name()},
                     {"version", models[i]->version()},
                     {"instances", models[i]->num_instances()}});
      continue;
    }
    for (size_t changed = 0; changed < i; ++changed) {
      const Status undone = set(*models[changed], before);
      if (undone.ok()) continue;
      logging::Error("version keeps its new instances", {{"model", config.name()},
                                                         {"version", models[changed]->version()},
                                                         {"reason", undone.message()}});
    }
    return status;
  }
  return Status::Ok();
}

}  // namespace inflight::serving

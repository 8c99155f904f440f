// SPDX-License-Identifier: Apache-2.0
// Repository: repositories that come and go while the server runs.
#include <algorithm>
#include <set>
#include <string>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/repository/repository.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {

namespace fs = std::filesystem;

Status Repository::AddRepository(const AddedRepository& added) {
  RETURN_IF_ERROR(CheckModelName(added.model));
  const fs::path root = added.root;
  const std::lock_guard lock(control_mutex_);
  if (places_.HasRoot(root)) {
    return AlreadyExists("model repository '" + added.root + "' has already been registered");
  }
  if (IsKnown(added.model)) {
    return AlreadyExists("failed to register '" + added.model + "', there is such a model");
  }
  for (const fs::path& dir : Subdirectories(root)) {
    const std::string name = dir.filename().string();
    if (name == added.directory || !IsModel(dir) || !IsKnown(name)) continue;
    return InvalidArgument("failed to register '" + added.root + "', model '" + name +
                           "' appears in two or more repositories");
  }
  const std::lock_guard publish(places_mutex_);
  places_.AddRoot(root);
  places_.SetName(added.model, root / added.directory);
  return Status::Ok();
}

bool Repository::IsKnown(const std::string& name) const {
  return places_.Find(name) || std::any_of(entries_.begin(), entries_.end(),
                                           [&](const auto& entry) { return entry.name == name; });
}

bool Repository::Knows(const std::string& name) const {
  if (!CheckModelName(name).ok()) return false;  // it would lead elsewhere
  const HeldTable table = this->table();
  return table->entries().contains(name) || places().Find(name);
}

void Repository::RemoveRepository(const fs::path& root) {
  std::unique_lock lock(control_mutex_);
  const auto find_names = [&] {
    std::set<std::string> names;
    for (const ModelEntry& entry : entries_) {
      if (entry.dir.parent_path() == root) names.insert(entry.name);
    }
    return names;
  };
  const ModelClaims::Scope claim(claims_, lock, ModelClaims::Kind::kUnload, [&] {
    std::set<std::string> connected;
    for (const std::string& name : find_names()) connected.merge(ConnectedWith(name, {}));
    return connected;
  });
  const std::set<std::string> names = find_names();
  for (const std::string& name : names) {
    UnloadOne(name);
    std::erase_if(entries_, [&](const ModelEntry& entry) { return entry.name == name; });
    std::erase_if(reports_, [&](const ModelReport& report) { return report.model == name; });
    loader_.ForgetPartner(name);
  }
  {
    const std::lock_guard publish(places_mutex_);
    places_.RemoveRoot(root);
  }
  Publish();
}

}  // namespace inflight::serving

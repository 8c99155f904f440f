// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/model_places.h"

#include <algorithm>

#include "serving/repository/auto_complete.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {

namespace fs = std::filesystem;

void ModelPlaces::RemoveRoot(const fs::path& root) {
  std::erase(roots_, root);
  std::erase_if(named_, [&](const auto& named) { return named.second.parent_path() == root; });
}

bool ModelPlaces::HasRoot(const fs::path& root) const {
  std::error_code error;
  return std::any_of(roots_.begin(), roots_.end(), [&](const fs::path& known) {
    return known == root || fs::equivalent(known, root, error);
  });
}

bool ModelPlaces::IsModel(const fs::path& dir) const {
  if (Exists(ConfigFile(dir, config_name_))) return true;
  return auto_completes_ && NeedsNoConfig(dir.filename().string()) && FirstVersion(dir);
}

std::optional<fs::path> ModelPlaces::Find(const std::string& name) const {
  if (const auto named = named_.find(name); named != named_.end()) return named->second;
  for (const fs::path& root : roots_) {
    if (Exists(root / name) && !IsNamed(root / name)) return root / name;
  }
  return std::nullopt;
}

bool ModelPlaces::IsAmbiguous(const std::string& name) const {
  if (named_.contains(name)) return false;
  return std::count_if(roots_.begin(), roots_.end(), [&](const fs::path& root) {
           return IsModel(root / name) && !IsNamed(root / name);
         }) > 1;
}

std::set<std::string> ModelPlaces::Names() const {
  std::set<std::string> names;
  for (const auto& [name, dir] : named_) {
    if (Exists(dir)) names.insert(name);
  }
  for (const fs::path& root : roots_) {
    for (const fs::path& dir : Subdirectories(root)) {
      if (!IsNamed(dir)) names.insert(dir.filename().string());
    }
  }
  return names;
}

bool ModelPlaces::IsNamed(const fs::path& dir) const {
  return std::any_of(named_.begin(), named_.end(),
                     [&](const auto& named) { return named.second == dir; });
}

}  // namespace inflight::serving

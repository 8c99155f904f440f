// SPDX-License-Identifier: Apache-2.0
// Where models lie: each in the sub-directory of its name of one of the repositories, except those
// that are served under a name of their own.
//
// Threads: none; the repository guards it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace inflight::serving {

class ModelPlaces {
 public:
  // `config_name`: of the files that models may be configured by beside config.pbtxt.
  // `auto_complete`: some need none (auto_complete.h).
  ModelPlaces(std::string config_name, bool auto_complete)
      : config_name_(std::move(config_name)), auto_completes_(auto_complete) {}

  void AddRoot(const std::filesystem::path& root) { roots_.push_back(root); }
  // The model in `dir` is called `name` from now on, and not like the directory any more.
  void SetName(const std::string& name, const std::filesystem::path& dir) { named_[name] = dir; }
  // With the names of its models.
  void RemoveRoot(const std::filesystem::path& root);

  const std::vector<std::filesystem::path>& roots() const { return roots_; }
  bool HasRoot(const std::filesystem::path& root) const;

  // Whether the directory has a configuration, or versions that need none.
  bool IsModel(const std::filesystem::path& dir) const;
  std::optional<std::filesystem::path> Find(const std::string& name) const;
  // Whether more than one repository has a model of this name.
  bool IsAmbiguous(const std::string& name) const;
  // Of all sub-directories of the repositories, models or not.
  std::set<std::string> Names() const;

 private:
  bool IsNamed(const std::filesystem::path& dir) const;

  std::string config_name_;
  bool auto_completes_;
  std::vector<std::filesystem::path> roots_;
  std::map<std::string, std::filesystem::path> named_;
};

}  // namespace inflight::serving

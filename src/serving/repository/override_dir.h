// SPDX-License-Identifier: Apache-2.0
// The files that a load request brings in place of a model's directory.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "inflight/status.h"

namespace inflight::serving {

// A temporary model directory that holds the files of a request. Removed with the object.
class OverrideDir {
 public:
  // kInvalidArgument for a path that leaves the directory.
  static Result<std::shared_ptr<const OverrideDir>> Write(
      const std::string& model, const std::map<std::string, std::string>& files);
  ~OverrideDir();
  OverrideDir(const OverrideDir&) = delete;
  OverrideDir& operator=(const OverrideDir&) = delete;

  const std::filesystem::path& path() const { return path_; }  // ends with the model's name

 private:
  explicit OverrideDir(std::filesystem::path root, const std::string& model);

  const std::filesystem::path root_;
  const std::filesystem::path path_;
};

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/override_dir.h"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "serving/tensors/model_file.h"

namespace inflight::serving {

namespace fs = std::filesystem;

OverrideDir::OverrideDir(fs::path root, const std::string& model)
    : root_(std::move(root)), path_(root_ / model) {}

OverrideDir::~OverrideDir() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

Result<std::shared_ptr<const OverrideDir>> OverrideDir::Write(
    const std::string& model, const std::map<std::string, std::string>& files) {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  std::string root = (temporary / "inflight_model_XXXXXX").string();
  if (error || mkdtemp(root.data()) == nullptr) {
    return Unavailable("cannot make a directory for the files of model '" + model + "' in '" +
                       temporary.string() + "' (set TMPDIR to a directory that can be written)");
  }
  std::shared_ptr<const OverrideDir> dir(new OverrideDir(root, model));
  for (const auto& [name, content] : files) {
    if (!StaysBelow(name)) {
      return InvalidArgument(fmt::format(
          "file:{} of model '{}' must be a path below the model's directory", name, model));
    }
    const fs::path path = dir->path() / name;
    fs::create_directories(path.parent_path(), error);
    if (error) return Unavailable("cannot make " + path.parent_path().string());
    RETURN_IF_ERROR(WriteFile(path, content));
  }
  return dir;
}

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/repository_layout.h"

#include <algorithm>
#include <cstdint>

#include "base/control_bytes.h"
#include "base/log.h"
#include "builder/model_files.h"
#include "serving/tensors/model_file.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

constexpr char kConfigsDir[] = "configs";
constexpr char kConfigExtension[] = ".pbtxt";

std::vector<int64_t> VersionsIn(const fs::path& dir) {
  std::vector<int64_t> versions;
  for (const fs::path& sub : Subdirectories(dir)) {
    const std::string name = sub.filename().string();
    const bool digits =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || name.front() == '0' || name.size() > 18) continue;
    versions.push_back(std::stoll(name));
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

// `dir`, or the only sub-directory for which `is_it` holds when it does not for `dir`.
template <typename IsIt>
fs::path OnlyPlace(const fs::path& dir, const IsIt& is_it) {
  if (is_it(dir)) return dir;
  std::vector<fs::path> places = Subdirectories(dir);
  std::erase_if(places, [&](const fs::path& sub) { return !is_it(sub); });
  return places.size() == 1 ? places.front() : dir;
}

bool HasEngine(const fs::path& place) { return Exists(place / "config.json"); }

}  // namespace

Status CheckModelName(const std::string& name) {
  if (name.find_first_not_of(" \t\r\n") == std::string::npos) {
    return InvalidArgument("Model name cannot be empty. Please enter a valid name to deploy.");
  }
  if (name.find('/') != std::string::npos || name.find('\\') != std::string::npos || name == "." ||
      name == ".." || HasControlBytes(name)) {
    return InvalidArgument("invalid model name '" + name +
                           "', model name must not contain path traversal characters");
  }
  return Status::Ok();
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

fs::path ConfigFile(const fs::path& model_dir, const std::string& name) {
  const fs::path named = model_dir / kConfigsDir / (name + kConfigExtension);
  return !name.empty() && Exists(named) ? named : model_dir / kConfigFile;
}

std::vector<fs::path> Subdirectories(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().filename().string().starts_with('.')) continue;
    if (it->is_directory(ignored)) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> SelectVersions(const ModelConfig& config, const fs::path& dir) {
  std::vector<int64_t> present = VersionsIn(dir);
  const auto& policy = config.version_policy();
  if (policy.has_specific()) {
    const auto& wanted = policy.specific().versions();
    for (const int64_t version : wanted) {
      if (std::find(present.begin(), present.end(), version) == present.end())
        logging::Error("version of the version policy is not there, it is skipped",
                       {{"model", config.name()}, {"version", version}, {"path", dir.string()}});
    }
    std::erase_if(present, [&](int64_t version) {
      return std::find(wanted.begin(), wanted.end(), version) == wanted.end();
    });
  } else if (!policy.has_all()) {
    const size_t count = std::max<uint32_t>(1, policy.latest().num_versions());
    if (present.size() > count) {
      present.erase(present.begin(), present.end() - static_cast<std::ptrdiff_t>(count));
    }
  }
  std::vector<std::string> selected;
  for (const int64_t version : present) selected.push_back(std::to_string(version));
  return selected;
}

std::optional<fs::path> FirstVersion(const fs::path& model_dir) {
  const std::vector<int64_t> versions = VersionsIn(model_dir);
  if (versions.empty()) return std::nullopt;
  return model_dir / std::to_string(versions.front());
}

fs::file_time_type NewestChange(const fs::path& dir) {
  std::error_code error;
  fs::file_time_type newest = fs::last_write_time(dir, error);
  for (fs::recursive_directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code unreadable;
    const auto changed = fs::last_write_time(it->path(), unreadable);
    if (!unreadable) newest = std::max(newest, changed);
  }
  return newest;
}

FileTimes DataFiles(const fs::path& dir) {
  FileTimes files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    const fs::path& path = it->path();
    std::error_code unreadable;
    const bool is_directory = fs::is_directory(it->symlink_status(unreadable));
    const bool is_hidden = path.filename().string().starts_with('.');
    if (is_hidden && is_directory) it.disable_recursion_pending();
    const bool is_config = path == dir / kConfigFile || (path.parent_path() == dir / kConfigsDir &&
                                                         path.extension() == kConfigExtension);
    if (is_hidden || is_directory || is_config) continue;
    files[path] = fs::last_write_time(path, unreadable);
  }
  return files;
}

std::optional<fs::path> FindRepository(const fs::path& dir) {
  const auto holds_models = [](const fs::path& place) {
    const std::vector<fs::path> subs = Subdirectories(place);
    return std::any_of(subs.begin(), subs.end(),
                       [](const fs::path& sub) { return Exists(sub / kConfigFile); });
  };
  if (holds_models(dir)) return dir;
  const std::vector<fs::path> subs = Subdirectories(dir);
  if (subs.size() == 1 && holds_models(subs.front())) return subs.front();
  return std::nullopt;
}

fs::path ResolvePath(const fs::path& path, const fs::path& model_dir) {
  if (path.is_absolute() || Exists(path)) return path;
  for (const fs::path& base : {model_dir, model_dir.parent_path()}) {
    if (Exists(base / path)) return base / path;
  }
  return path;
}

fs::path EnginePlace(const fs::path& dir) { return OnlyPlace(dir, HasEngine); }

Result<fs::path> FindEngine(const fs::path& dir, bool is_named) {
  if (!Exists(dir)) return NotFound("gpt_model_path: '" + dir.string() + "' does not exist");
  const fs::path found = EnginePlace(dir);
  if (found != dir) {
    logging::Warning("engine taken from the only sub-directory that has one",
                     {{"path", dir.string()}, {"engine", found.string()}});
  } else if (!is_named && !HasEngine(dir)) {
    return NotFound(
        "Both encoder and decoder model paths are empty: gpt_model_path is not set, and '" +
        dir.string() + "' holds no engine");
  }
  return found;
}

bool HasTokenizer(const fs::path& dir) { return !builder::TokenizerDir(dir).empty(); }

fs::path FindTokenizer(const fs::path& dir) { return OnlyPlace(dir, HasTokenizer); }

}  // namespace inflight::serving

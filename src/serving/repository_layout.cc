// SPDX-License-Identifier: Apache-2.0
#include "serving/repository_layout.h"

#include <algorithm>
#include <cstdint>

#include "base/log.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelConfig;

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

}  // namespace

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::vector<fs::path> Subdirectories(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
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

fs::path ResolveEngineDir(const fs::path& dir) {
  if (Exists(dir / "config.json")) return dir;
  std::vector<fs::path> engines = Subdirectories(dir);
  std::erase_if(engines, [](const fs::path& sub) { return !Exists(sub / "config.json"); });
  if (engines.size() != 1) return dir;
  logging::Warning("engine taken from the only sub-directory that has one",
                   {{"path", dir.string()}, {"engine", engines.front().string()}});
  return engines.front();
}

}  // namespace inflight::serving

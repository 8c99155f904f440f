// SPDX-License-Identifier: Apache-2.0
#include "protocol/sagemaker/model_place.h"

#include <algorithm>
#include <vector>

#include "base/control_bytes.h"
#include "base/file.h"
#include "serving/configuration/model_config.h"
#include "serving/repository/repository_layout.h"

namespace inflight::sagemaker {
namespace {

namespace fs = std::filesystem;

bool IsBelow(const fs::path& path, const fs::path& top) {
  return std::mismatch(top.begin(), top.end(), path.begin(), path.end()).first == top.end();
}

Status Refused(const std::string& url, const std::string& why) {
  return InvalidArgument("url '" + url + "': " + why);
}

bool IsEnsemble(const fs::path& model_dir) {
  constexpr uint64_t kMaxConfigBytes = 16 << 20;
  const auto text = ReadFile(model_dir / serving::kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return false;
  const auto parsed = serving::ParseModelConfig(*text);
  return parsed.ok() && parsed->config.platform() == "ensemble";
}

}  // namespace

Result<ModelPlace> FindModelPlace(const std::string& url) {
  if (HasControlBytes(url)) return Refused(url, "it has control bytes");
  std::error_code error;
  const fs::path dir = fs::canonical(url, error);
  if (error || !fs::is_directory(dir, error)) return Refused(url, "there is no such directory");
  for (const char* top : {"/dev", "/proc", "/sys"}) {
    if (IsBelow(dir, top)) return Refused(url, std::string("nothing is loaded from ") + top);
  }
  if (serving::Exists(dir / serving::kConfigFile)) {
    return ModelPlace{.repository = dir.parent_path(), .directory = dir.filename().string()};
  }
  std::vector<fs::path> models = serving::Subdirectories(dir);
  std::erase_if(models,
                [](const fs::path& sub) { return !serving::Exists(sub / serving::kConfigFile); });
  if (models.empty()) return Refused(url, "it holds no model, which has a config.pbtxt");
  if (models.size() > 1) {
    std::erase_if(models, [](const fs::path& model) { return !IsEnsemble(model); });
  }
  if (models.size() != 1) {
    return Refused(url, "it holds several models and " +
                            std::string(models.empty() ? "no ensemble" : "several ensembles") +
                            ", one must be meant");
  }
  return ModelPlace{.repository = dir, .directory = models.front().filename().string()};
}

}  // namespace inflight::sagemaker

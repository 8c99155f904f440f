// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/engine_places.h"

#include "base/file.h"
#include "object_store/address.h"
#include "serving/configuration/config_fields.h"
#include "serving/configuration/model_config.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;

// Of the model in `dir`; none where it is no LLM.
void AddModel(const fs::path& dir, const std::string& config_name, std::vector<fs::path>& places) {
  const auto text = ReadFile(ConfigFile(dir, config_name));
  if (!text.ok()) return;
  const auto parsed = ParseModelConfig(*text);
  if (!parsed.ok() || KindOf(parsed->config) != ModelKind::kLlm) return;
  for (const char* key : {"gpt_model_path", "engine_dir"}) {
    if (const auto named = FindParameter(parsed->config, key))
      return places.push_back(EnginePlace(ResolvePath(*named, dir)));
  }
  for (const std::string& version : SelectVersions(parsed->config, dir))
    places.push_back(EnginePlace(dir / version));
}

void AddRepository(const fs::path& root, const std::string& config_name,
                   std::vector<fs::path>& places) {
  for (const fs::path& dir : Subdirectories(root)) AddModel(dir, config_name, places);
}

}  // namespace

std::vector<fs::path> EnginePlaces(const ServerOptions& options) {
  std::vector<fs::path> places;
  for (const std::string& dir : options.model_dirs) {
    if (const auto root = FindRepository(dir))
      AddRepository(*root, options.model_config_name, places);
    else
      places.emplace_back(dir);
  }
  for (const std::string& dir : options.model_repositories) {
    if (!object_store::IsAddress(dir))
      AddRepository(FindRepository(dir).value_or(dir), options.model_config_name, places);
  }
  return places;
}

}  // namespace inflight::serving

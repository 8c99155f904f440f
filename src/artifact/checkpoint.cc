// SPDX-License-Identifier: Apache-2.0
#include "artifact/checkpoint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "artifact/json_file.h"
#include "base/file.h"

namespace inflight::artifact {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;

Status CheckMapping(const std::string& where, const nlohmann::json& config) {
  JsonFields fields(where, config);
  const nlohmann::json* mapping = fields.Find("mapping");
  if (mapping == nullptr) return Status::Ok();
  JsonFields ranks(where + ": mapping", *mapping);
  for (const char* name : {"world_size", "tp_size", "pp_size", "cp_size"}) {
    const int64_t size = ranks.IntOr(name, 1, 1, kMaxRanks);
    if (size != 1)
      return Unimplemented(
          fmt::format("{}: mapping: {}: got {}, only 1 is built for now; convert "
                      "the model with --tp-size 1 --pp-size 1",
                      where, name, size));
  }
  return ranks.status();
}

}  // namespace

Result<TensorSet> OpenCheckpointTensors(const std::filesystem::path& dir,
                                        const nlohmann::json& config) {
  RETURN_IF_ERROR(CheckMapping((dir / kConfigFile).string(), config));
  if (FileExists(dir / "rank1.safetensors"))
    return InvalidArgument(fmt::format(
        "{}: holds rank1.safetensors, config.json's mapping says one rank", dir.string()));
  return TensorSet::OpenFile(dir / kRankFile);
}

Status CreateDirectory(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error)
    return Internal(
        fmt::format("{}: cannot create the directory: {}", dir.string(), error.message()));
  return Status::Ok();
}

Status WriteConfig(const std::filesystem::path& dir, const nlohmann::json& config) {
  return WriteFile(dir / kConfigFile, config.dump(2) + "\n");
}

}  // namespace inflight::artifact

// SPDX-License-Identifier: Apache-2.0
#include "artifact/checkpoint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "artifact/json_file.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

constexpr int64_t kMaxRanks = 1 << 12;  // in each direction

Status RemoveFrom(const std::filesystem::path& dir, int rank, std::string (*name_of)(int)) {
  for (;; ++rank) {
    std::error_code error;
    const std::filesystem::path path = dir / name_of(rank);
    if (!std::filesystem::remove(path, error))
      return error ? Internal(fmt::format("{}: cannot remove: {}", path.string(), error.message()))
                   : Status::Ok();
  }
}

}  // namespace

std::string RankMapping::ToString() const {
  return fmt::format("{} ranks (tp_size {} * pp_size {})", num_ranks(), tp_size, pp_size);
}

std::string RankFileName(int rank) { return fmt::format("rank{}.safetensors", rank); }
std::string EngineFileName(int rank) { return fmt::format("rank{}.engine", rank); }

Result<RankMapping> ReadMapping(const nlohmann::json& config, const std::string& where) {
  JsonFields fields(where, config);
  const nlohmann::json* object = fields.FindObject("mapping");
  RETURN_IF_ERROR(fields.status());
  if (object == nullptr) return RankMapping{};
  JsonFields ranks(where + ": mapping", *object);
  RankMapping mapping{.tp_size = static_cast<int>(ranks.IntOr("tp_size", 1, 1, kMaxRanks)),
                      .pp_size = static_cast<int>(ranks.IntOr("pp_size", 1, 1, kMaxRanks))};
  const int64_t cp_size = ranks.IntOr("cp_size", 1, 1, kMaxRanks);
  const int64_t world_size =
      ranks.IntOr("world_size", mapping.num_ranks() * cp_size, 1, kMaxRanks * kMaxRanks);
  RETURN_IF_ERROR(ranks.status());
  if (cp_size != 1)
    return Unimplemented(
        fmt::format("{}: cp_size: got {}, only 1 is supported; convert without context parallelism",
                    ranks.where(), cp_size));
  if (world_size != mapping.num_ranks())
    return InvalidArgument(fmt::format("{}: world_size: got {}, tp_size {} * pp_size {} is needed",
                                       ranks.where(), world_size, mapping.tp_size,
                                       mapping.pp_size));
  return mapping;
}

nlohmann::json MappingToJson(const RankMapping& mapping) {
  return {{"world_size", mapping.num_ranks()},
          {"tp_size", mapping.tp_size},
          {"pp_size", mapping.pp_size},
          {"cp_size", 1},
          {"gpus_per_node", 8}};
}

Result<std::vector<TensorSet>> OpenRankFiles(const std::filesystem::path& dir,
                                             const RankMapping& mapping) {
  const auto counted = [&] {
    return fmt::format("config.json's mapping has {}", mapping.ToString());
  };
  if (const std::string next = RankFileName(mapping.num_ranks()); FileExists(dir / next))
    return InvalidArgument(fmt::format("{}: holds {}, {}", dir.string(), next, counted()));
  std::vector<TensorSet> files;
  for (int rank = 0; rank < mapping.num_ranks(); ++rank) {
    const std::filesystem::path path = dir / RankFileName(rank);
    if (!FileExists(path))
      return NotFound(
          fmt::format("{}: {} is missing, {}", dir.string(), path.filename().string(), counted()));
    ASSIGN_OR_RETURN(TensorSet file, TensorSet::OpenFile(path));
    files.push_back(std::move(file));
  }
  return files;
}

Status RemoveFurtherRankFiles(const std::filesystem::path& dir, int num_ranks) {
  return RemoveFrom(dir, num_ranks, RankFileName);
}

Status RemoveFurtherEngineFiles(const std::filesystem::path& dir, int num_ranks) {
  return RemoveFrom(dir, num_ranks, EngineFileName);
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

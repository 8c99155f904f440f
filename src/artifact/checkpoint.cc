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

// Before there were sizes, a checkpoint's moe.tp_mode said whether each rank has experts of its own
// (NVIDIA/TensorRT-LLM/tensorrt_llm/layers/moe.py, MoeConfig.ParallelismMode).
Result<bool> HasOwnExperts(const JsonFields& config) {
  constexpr int kNone = 0, kExpertParallel = 1, kTensorParallel = 2;
  const nlohmann::json* const object = config.Find("moe");
  if (object == nullptr || !object->is_object()) return false;
  JsonFields moe(config.where() + ": moe", *object);
  const int64_t mode = moe.IntOr("tp_mode", kTensorParallel, kNone, kTensorParallel);
  RETURN_IF_ERROR(moe.status());
  return mode == kExpertParallel;
}

}  // namespace

std::string RankMapping::ToString() const {
  return fmt::format("{} ranks (tp_size {} * pp_size {}{})", num_ranks(), tp_size, pp_size,
                     moe_ep_size == 1 ? "" : fmt::format(", moe_ep_size {}", moe_ep_size));
}

Result<RankMapping> MakeMapping(const RankSizes& sizes) {
  RankMapping mapping{.tp_size = sizes.tp_size.value_or(1), .pp_size = sizes.pp_size.value_or(1)};
  const int tp_size = mapping.tp_size;
  const int of_tp = sizes.moe_tp_size.value_or(-1);
  const int of_ep = sizes.moe_ep_size.value_or(-1);
  for (const auto& [name, size] : {std::pair{"moe_tp_size", of_tp}, {"moe_ep_size", of_ep}})
    if (size != -1 && (size < 1 || tp_size % size != 0))
      return InvalidArgument(
          name, fmt::format("got {}, it has to divide the tensor-parallel ranks, which are {}; "
                            "change one of both, or leave it out",
                            size, tp_size));
  if (of_tp != -1 && of_ep != -1 && int64_t{of_tp} * of_ep != tp_size)
    return InvalidArgument(
        "moe_ep_size", fmt::format("got {}, beside moe_tp_size {} of {} tensor-parallel ranks it "
                                   "has to be {}; give one of both",
                                   of_ep, of_tp, tp_size, tp_size / of_tp));
  if (of_ep != -1)
    mapping.moe_ep_size = of_ep;
  else if (of_tp != -1)
    mapping.moe_ep_size = tp_size / of_tp;
  return mapping;
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
  ASSIGN_OR_RETURN(const bool has_own_experts, HasOwnExperts(fields));
  const int64_t moe_tp_size = ranks.IntOr("moe_tp_size", has_own_experts ? 1 : -1, -1, kMaxRanks);
  const int64_t moe_ep_size = ranks.IntOr("moe_ep_size", -1, -1, kMaxRanks);
  const int64_t moe_cluster_size = ranks.IntOr("moe_cluster_size", 1, -1, kMaxRanks);
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
  if (moe_cluster_size > 1)
    return Unimplemented(
        fmt::format("{}: moe_cluster_size: got {}, only 1 is supported; convert without it",
                    ranks.where(), moe_cluster_size));
  Result<RankMapping> with_experts = MakeMapping({.tp_size = mapping.tp_size,
                                                  .pp_size = mapping.pp_size,
                                                  .moe_tp_size = static_cast<int>(moe_tp_size),
                                                  .moe_ep_size = static_cast<int>(moe_ep_size)});
  return with_experts.ok() ? with_experts : with_experts.status().WithPrefix(ranks.where());
}

nlohmann::json MappingToJson(const RankMapping& mapping) {
  nlohmann::json json = {{"world_size", mapping.num_ranks()},
                         {"tp_size", mapping.tp_size},
                         {"pp_size", mapping.pp_size},
                         {"cp_size", 1},
                         {"gpus_per_node", 8}};
  if (mapping.moe_ep_size > 1) {
    json["moe_tp_size"] = mapping.moe_tp_size();
    json["moe_ep_size"] = mapping.moe_ep_size;
  }
  return json;
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

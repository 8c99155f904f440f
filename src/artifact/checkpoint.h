// SPDX-License-Identifier: Apache-2.0
// Checkpoints: config.json and one rankN.safetensors per rank (docs/reference/artifacts.md).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "artifact/tensor_set.h"

namespace inflight::artifact {

inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kTuningFile[] = "rank0.tuning";  // hints for one kind of GPU; may be absent

// How many ranks a checkpoint or an engine is split over. File r belongs to rank r = pp_rank *
// tp_size + tp_rank.
struct RankMapping {
  int tp_size = 1;
  int pp_size = 1;
  int moe_ep_size = 1;  // divides tp_size: so many of the ranks of a stage hold different experts

  int moe_tp_size() const { return tp_size / moe_ep_size; }  // each a part of the same ones
  int num_ranks() const { return tp_size * pp_size; }
  int rank(int pp_rank, int tp_rank) const { return pp_rank * tp_size + tp_rank; }
  bool operator==(const RankMapping&) const = default;
  // "2 ranks (tp_size 2 * pp_size 1)"; with moe_ep_size 2 "2 ranks (tp_size 2 * pp_size 1,
  // moe_ep_size 2)"
  std::string ToString() const;
};

// What is asked of a mapping. Of the sizes of experts, whose product is tp_size, the one that is
// not given follows from the other; without both moe_tp_size is tp_size. -1 is as not given.
struct RankSizes {
  std::optional<int> tp_size = std::nullopt;
  std::optional<int> pp_size = std::nullopt;
  std::optional<int> moe_tp_size = std::nullopt;
  std::optional<int> moe_ep_size = std::nullopt;

  bool says_experts() const {
    return moe_tp_size.value_or(-1) != -1 || moe_ep_size.value_or(-1) != -1;
  }
};
// 1 where tp_size and pp_size are not given. kInvalidArgument names the size of experts that does
// not fit, and tp_size.
Result<RankMapping> MakeMapping(const RankSizes& sizes);

std::string RankFileName(int rank);    // "rank3.safetensors"
std::string EngineFileName(int rank);  // "rank3.engine"

// "mapping" of a checkpoint's config.json, one rank where it is absent. kInvalidArgument if
// world_size is not their product, and as of MakeMapping; context parallelism (cp_size) and
// clusters of experts (moe_cluster_size) are kUnimplemented.
Result<RankMapping> ReadMapping(const nlohmann::json& config, const std::string& where);
nlohmann::json MappingToJson(const RankMapping& mapping);

// The tensors of each rank. A missing file is kNotFound, one too many kInvalidArgument.
Result<std::vector<TensorSet>> OpenRankFiles(const std::filesystem::path& dir,
                                             const RankMapping& mapping);

// Removes rank files that a checkpoint, or an engine, of `num_ranks` ranks does not have and an
// earlier one left.
Status RemoveFurtherRankFiles(const std::filesystem::path& dir, int num_ranks);
Status RemoveFurtherEngineFiles(const std::filesystem::path& dir, int num_ranks);

// Creates `dir` if need be and checks that it is a directory.
Status CreateDirectory(const std::filesystem::path& dir);

// Writes `config` as config.json, indented.
Status WriteConfig(const std::filesystem::path& dir, const nlohmann::json& config);

}  // namespace inflight::artifact

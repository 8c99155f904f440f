// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories: config.json and one rankN.safetensors per rank (spec/engine.md 1.5).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "artifact/tensor_set.h"

namespace inflight::artifact {

inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kRankFile[] = "rank0.safetensors";
inline constexpr char kEngineFile[] = "rank0.engine";

// The tensors of a checkpoint of one rank. More ranks, or a config.mapping that says so, are
// kUnimplemented.
Result<TensorSet> OpenCheckpointTensors(const std::filesystem::path& dir,
                                        const nlohmann::json& config);

// Creates `dir` if need be and checks that it is a directory.
Status CreateDirectory(const std::filesystem::path& dir);

// Writes `config` as config.json, indented.
Status WriteConfig(const std::filesystem::path& dir, const nlohmann::json& config);

}  // namespace inflight::artifact

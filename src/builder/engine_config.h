// SPDX-License-Identifier: Apache-2.0
// config.json of engines (docs/reference/artifacts.md, "config.json of an engine").
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "builder/sharding.h"
#include "model/config.h"
#include "model/limits.h"

namespace inflight::builder {

// `format` in the file. Raised when a program that knows the former one would take an engine for
// another than it is; what such a program refuses or may ignore is added without that.
inline constexpr int kEngineConfigFormat = 1;

struct EngineConfig {
  model::ModelConfig model;  // the whole one
  Sharding sharding;         // over the engine's ranks
  // EngineTable::checksum of each rank's file, [num_ranks]; empty where there is one rank.
  std::vector<uint64_t> rank_checksums;
  model::EngineLimits limits;
};

// What to do about an engine that is not as it has to be.
inline constexpr char kRebuild[] =
    "rebuild it with `inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE`";

// Errors name the field. kUnimplemented for an engine of TensorRT-LLM, kFailedPrecondition for one
// of a later format.
Result<EngineConfig> ReadEngineConfig(const std::filesystem::path& dir);

// Written last: it is what makes the directory an engine. `further`: keys of a checkpoint's that
// ModelConfig does not hold, or null.
Status WriteEngineConfig(const std::filesystem::path& dir, const EngineConfig& config,
                         const nlohmann::json* further);

}  // namespace inflight::builder

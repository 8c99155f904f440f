// SPDX-License-Identifier: Apache-2.0
// Model descriptions as they stand in a checkpoint's config.json and in an engine's
// "pretrained_config" (docs/reference/artifacts.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "model/config.h"

namespace inflight::model {

// A shared expert's width, in checkpoints where it stands apart from the others, as upstream has
// it.
inline constexpr std::string_view kSharedExpertWidth = "moe_shared_expert_intermediate_size";

// Fields are rows of the family's table (families/family.h). Errors name `where` (a file) and the
// field; what is described and not supported (quantisation, other position kinds) is kUnimplemented
// by name. How the weights are sharded is builder/sharding.h's.
Result<ModelConfig> ConfigFromCheckpoint(const nlohmann::json& object, const std::string& where);
nlohmann::json ConfigToCheckpoint(const ModelConfig& config);

// Whether this is a known key of a checkpoint's config.json. Others are extensions of
// whoever wrote it.
bool IsCheckpointField(std::string_view key);

// A token id, or none where it is absent or negative (-1 is common for "no such token").
std::optional<TokenId> OptionalTokenId(const nlohmann::json& object, const std::string& where,
                                       std::string_view name, Status& status);
// Ids given as a number or as a list of numbers; negative ones are left out.
std::vector<TokenId> TokenIds(const nlohmann::json& object, const std::string& where,
                              std::string_view name, Status& status);

}  // namespace inflight::model

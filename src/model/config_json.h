// SPDX-License-Identifier: Apache-2.0
// Model descriptions as they stand in a checkpoint's config.json and in an engine's
// "pretrained_config" (spec/engine.md 1.5).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "model/config.h"

namespace inflight::model {

// The part of a ModelConfig that follows from its architecture; kUnimplemented lists the known
// ones.
Result<ModelConfig> FamilyOf(const std::string& architecture);

// Errors name `where` (a file) and the field. What is described but not built (quantisation, other
// position kinds) is kUnimplemented by name. How the weights are sharded is builder/sharding.h's.
Result<ModelConfig> ConfigFromCheckpoint(const nlohmann::json& json, const std::string& where);
nlohmann::json ConfigToCheckpoint(const ModelConfig& config);

// Whether spec/engine.md 1.5 knows this key of a checkpoint's config.json. Others are extensions of
// whoever wrote it.
bool IsCheckpointField(std::string_view key);

// "silu" -> kSilu, every tanh form of GELU -> kGeluTanh; empty for others.
std::optional<ops::ActivationKind> ActivationFromName(std::string_view name);

// The scaling that a Hugging Face or checkpoint dictionary with "rope_type" or "type" describes.
Result<RopeScaling> RopeScalingFromJson(const nlohmann::json& json, const std::string& where);

// A token id, or none where it is absent or negative (-1 is common for "no such token").
std::optional<TokenId> OptionalTokenId(const nlohmann::json& json, const std::string& where,
                                       std::string_view name, Status& status);
// Ids given as a number or as a list of numbers; negative ones are left out.
std::vector<TokenId> TokenIds(const nlohmann::json& json, const std::string& where,
                              std::string_view name, Status& status);

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// The limits of an engine: their defaults, bounds and place in config.json
// (docs/reference/artifacts.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/engine.h"

namespace inflight::model {

// Fills in what is 0 and checks the rest against the model:
//   max_seq_len      0 = max_position_embeddings. Never multiplied by a rope scaling factor.
//                    Beyond it: refused with learned positions, which have no table row for it,
//                    and with dynamic rope scaling, whose base would change under the cached
//                    keys; a warning with other rotary positions.
//   max_input_len    0 = max_seq_len; clipped to it
//   max_num_tokens   clipped to max_seq_len * max_batch_size
// kInvalidArgument names the limit, its value and its bound.
Result<EngineLimits> ResolveLimits(const ModelConfig& config, EngineLimits limits);

// "build_config" of an engine's config.json.
nlohmann::json LimitsToJson(const ModelConfig& config, const EngineLimits& limits);
Result<EngineLimits> LimitsFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace inflight::model

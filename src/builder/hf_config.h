// SPDX-License-Identifier: Apache-2.0
// Hugging Face's config.json and generation_config.json of the families that are supported
// (model/families/), in the older and the newer spelling (rope_scaling / rope_parameters,
// torch_dtype / dtype).
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "model/config.h"
#include "quantized/method.h"

namespace inflight::builder {

struct HfConfig {
  model::ModelConfig config;   // tied_embeddings as the file says; dtype is left to the caller
  std::optional<DType> dtype;  // that the file says; float64 counts as float32
  std::shared_ptr<const quantized::Method> quantization = nullptr;  // of the weights; null: none
  std::string quant_method = {};                                    // its name
};

// Errors name file, field and value. What is described and not supported (experts, other
// quantisations, rope types and architectures) is kUnimplemented by name.
Result<HfConfig> ParseHfConfig(const nlohmann::json& object, const std::string& where);

// config.json of `dir`; end, begin and pad ids of generation_config.json where it has them; the
// quantisation of hf_quant_config.json where config.json has none.
Result<HfConfig> ReadHfConfig(const std::filesystem::path& dir);

}  // namespace inflight::builder

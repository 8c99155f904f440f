// SPDX-License-Identifier: Apache-2.0
// Rows about experts.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "model/families/fields.h"

namespace inflight::model {
namespace {

using artifact::Abbreviate;
using artifact::JsonFields;
using nlohmann::json;

constexpr const char* kDenseLayers = "mlp_only_layers";
constexpr const char* kMoe = "moe";

// Numbers of layers that have no experts, as they are added to dense_layers.
Status ReadDenseLayers(JsonFields& fields, ModelConfig& config) {
  const json* list = fields.Find(kDenseLayers);
  if (list == nullptr) return Status::Ok();
  const auto is_layer = [&](const json& i) {
    return i.is_number_integer() && i >= 0 && i < config.num_layers;
  };
  if (!list->is_array() || !std::ranges::all_of(*list, is_layer))
    fields.Fail(kDenseLayers, fmt::format("got {}, a list of numbers of layers below {} is needed",
                                          Abbreviate(*list), config.num_layers));
  RETURN_IF_ERROR(fields.status());
  config.dense_layers.resize(static_cast<size_t>(config.num_layers), false);
  for (const json& i : *list) config.dense_layers[i.get<size_t>()] = true;
  return Status::Ok();
}

void SimplifyDenseLayers(ModelConfig& config) {
  if (std::ranges::count(config.dense_layers, true) == 0) config.dense_layers.clear();
}

// The numbers of upstream's MoeConfig.ExpertScaleNormalizationMode
// (NVIDIA/TensorRT-LLM/tensorrt_llm/layers/moe.py).
constexpr int kNoNormalization = 0;
constexpr int kRenormalize = 1;

Status ReadMoe(JsonFields& fields, ModelConfig& config) {
  const json* object = fields.FindObject(kMoe);
  RETURN_IF_ERROR(fields.status());
  config.num_experts = 0;
  if (object == nullptr) return Status::Ok();
  JsonFields moe(fmt::format("{}: {}", fields.where(), kMoe), *object);
  config.num_experts = static_cast<int>(moe.IntOr("num_experts", 0, 0, ops::kMaxExperts));
  if (config.num_experts > 0)
    config.experts_per_token = static_cast<int>(moe.Int("top_k", 1, config.num_experts));
  config.num_shared_experts =
      static_cast<int>(moe.IntOr("num_shared_experts", 0, 0, ops::kMaxExperts));
  const int64_t mode = moe.IntOr("normalization_mode", kRenormalize, 0, kMaxField);
  RETURN_IF_ERROR(moe.status());
  if (mode > kRenormalize)
    return Refuse(moe, "normalization_mode", "0 (none) and 1 (renormalized) are supported");
  config.has_renormalized_experts = mode == kRenormalize;
  return Status::Ok();
}

void WriteMoe(const ModelConfig& config, json& out) {
  if (config.num_experts == 0) return;
  out[kMoe] = {
      {"num_experts", config.num_experts},
      {"top_k", config.experts_per_token},
      {"normalization_mode", config.has_renormalized_experts ? kRenormalize : kNoNormalization}};
  if (config.num_shared_experts > 0) out[kMoe]["num_shared_experts"] = config.num_shared_experts;
}

}  // namespace

Fields HuggingFaceExperts(int64_t num_experts, int64_t experts_per_token) {
  constexpr std::string_view kNames[] = {"num_local_experts", "num_experts"};
  const auto read = [=](JsonFields& fields, ModelConfig& config) {
    const std::string_view name = fields.Has(kNames[0]) ? kNames[0] : kNames[1];
    config.num_experts = static_cast<int>(fields.IntOr(name, num_experts, 1, ops::kMaxExperts));
    return fields.status();
  };
  return {{.name = kNames[0], .read = read, .write = {}},
          Ignored(kNames[1]),
          NumberOr("num_experts_per_tok", &ModelConfig::experts_per_token, experts_per_token)};
}

Fields HuggingFaceSparseLayers() {
  const auto read = [](JsonFields& fields, ModelConfig& config) {
    const int64_t step = fields.IntOr("decoder_sparse_step", 1, 1, kMaxField);
    RETURN_IF_ERROR(fields.status());
    config.dense_layers.clear();
    for (int i = 1; i <= config.num_layers; ++i) config.dense_layers.push_back(i % step != 0);
    RETURN_IF_ERROR(ReadDenseLayers(fields, config));
    SimplifyDenseLayers(config);
    return Status::Ok();
  };
  return {{.name = kDenseLayers, .read = read, .write = {}}};
}

Fields CheckpointExperts() {
  const auto read_layers = [](JsonFields& fields, ModelConfig& config) {
    config.dense_layers.clear();
    RETURN_IF_ERROR(ReadDenseLayers(fields, config));
    SimplifyDenseLayers(config);
    return Status::Ok();
  };
  const auto write_layers = [](const ModelConfig& config, json& out) {
    for (size_t i = 0; i < config.dense_layers.size(); ++i)
      if (config.dense_layers[i]) out[kDenseLayers].push_back(i);
  };
  return {
      {.name = kMoe, .read = ReadMoe, .write = WriteMoe},
      NumberOr("moe_intermediate_size", &ModelConfig::expert_intermediate_size,
               [](const ModelConfig& c) { return c.intermediate_size; }),
      {.name = kDenseLayers, .read = read_layers, .write = write_layers},
      Activation("hidden_act", ActivationNames::kCheckpointOfExperts, "gelu"),
  };
}

}  // namespace inflight::model

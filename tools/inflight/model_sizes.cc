// SPDX-License-Identifier: Apache-2.0
#include "model_sizes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status_macros.h"
#include "model/config_json.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

constexpr char kActivation[] = "hidden_act";

// Calls `use` with each size that is given: its name here, its field in a checkpoint's config.json,
// and its value.
template <typename Use>
Status ForEach(const ModelSizes& sizes, const Use& use) {
  const auto one = [&use](const char* name, const char* field, const auto& value) {
    return value ? use(std::string_view(name), field, json(*value)) : Status::Ok();
  };
  RETURN_IF_ERROR(one("vocab_size", "vocab_size", sizes.vocab_size));
  RETURN_IF_ERROR(one("n_positions", "max_position_embeddings", sizes.n_positions));
  RETURN_IF_ERROR(one("n_layer", "num_hidden_layers", sizes.n_layer));
  RETURN_IF_ERROR(one("n_head", "num_attention_heads", sizes.n_head));
  RETURN_IF_ERROR(one("n_kv_head", "num_key_value_heads", sizes.n_kv_head));
  RETURN_IF_ERROR(one("n_embd", "hidden_size", sizes.n_embd));
  RETURN_IF_ERROR(one("inter_size", "intermediate_size", sizes.inter_size));
  RETURN_IF_ERROR(one("rms_norm_eps", "norm_epsilon", sizes.rms_norm_eps));
  RETURN_IF_ERROR(one("rotary_base", "rotary_base", sizes.rotary_base));
  return one("hidden_act", kActivation, sizes.hidden_act);
}

std::string TextOf(const json& value) {
  if (value.is_number_float()) return fmt::format("{:g}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Activations have several names; numbers are kept as float.
bool IsSame(std::string_view field, const json& given, const json& own, const json& checkpoint) {
  if (given == own) return true;
  if (given.is_number() && own.is_number())
    return static_cast<float>(given.get<double>()) == static_cast<float>(own.get<double>());
  if (field != kActivation) return false;
  json renamed = checkpoint;
  renamed[kActivation] = given;
  const auto config = model::ConfigFromCheckpoint(renamed, kActivation);
  return config.ok() && model::ConfigToCheckpoint(*config).at(kActivation) == own;
}

// What build.py of the two families took where it was told nothing.
json Defaults(bool is_gpt) {
  if (is_gpt)
    return {{"vocab_size", 51200}, {"max_position_embeddings", 1024}, {"num_hidden_layers", 24},
            {"hidden_size", 1024}, {"num_attention_heads", 16},       {"hidden_act", "gelu"}};
  return {{"vocab_size", 32000},       {"max_position_embeddings", 2048},
          {"num_hidden_layers", 32},   {"hidden_size", 4096},
          {"num_attention_heads", 32}, {"intermediate_size", 11008},
          {"norm_epsilon", 1e-6},      {"hidden_act", "silu"}};
}

}  // namespace

Status CheckSizes(const ModelSizes& sizes, const model::ModelConfig& config) {
  const json checkpoint = model::ConfigToCheckpoint(config);
  return ForEach(sizes, [&](std::string_view name, const char* field, const json& given) -> Status {
    const json own = checkpoint.contains(field) ? checkpoint.at(field) : json("none");
    if (IsSame(field, given, own, checkpoint)) return Status::Ok();
    return InvalidArgument(
        fmt::format("{}: got {}, the model has {}; leave it out, or change the model's config.json",
                    config::FlagOf(name), TextOf(given), TextOf(own)));
  });
}

Result<model::ModelConfig> ConfigOfSizes(const ModelSizes& sizes, const std::string& architecture,
                                         DType dtype) {
  json checkpoint = Defaults(architecture.starts_with("GPT"));
  checkpoint["architecture"] = architecture;
  checkpoint["dtype"] = std::string(DTypeName(dtype));
  // Given sizes: those that follow from another follow from the one that is given.
  if (sizes.n_embd) checkpoint.erase("intermediate_size");
  RETURN_IF_ERROR(ForEach(sizes, [&](std::string_view, const char* field, const json& given) {
    checkpoint[field] = given;
    return Status::Ok();
  }));
  return model::ConfigFromCheckpoint(checkpoint, "sizes of the model");
}

}  // namespace inflight::tool

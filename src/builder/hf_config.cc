// SPDX-License-Identifier: Apache-2.0
#include "builder/hf_config.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "artifact/checkpoint.h"
#include "artifact/json_file.h"
#include "base/file.h"
#include "base/log.h"
#include "model/config_json.h"

namespace inflight::builder {
namespace {

using artifact::JsonFields;
using model::ModelConfig;
using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;
constexpr char kGenerationConfig[] = "generation_config.json";

Status Refuse(const JsonFields& fields, std::string_view name, std::string_view why) {
  const json* value = fields.Find(name);
  return Unimplemented(fmt::format("{}: {}: got {}, {}", fields.where(), name,
                                   value == nullptr ? "null" : artifact::Abbreviate(*value), why));
}

Result<std::string> Architecture(JsonFields& fields) {
  const json* list = fields.Find("architectures");
  if (list != nullptr && list->is_array() && list->size() == 1 && (*list)[0].is_string())
    return (*list)[0].get<std::string>();
  if (list != nullptr) {
    fields.Fail("architectures",
                "got " + artifact::Abbreviate(*list) + ", a list of one name is needed");
    return fields.status();
  }
  const std::string type = fields.String("model_type");
  RETURN_IF_ERROR(fields.status());
  if (type == "llama") return std::string("LlamaForCausalLM");
  if (type == "gpt2") return std::string("GPT2LMHeadModel");
  return Refuse(fields, "model_type", "llama and gpt2 are built");
}

// What any family may carry and none that is built can honour.
Status RefuseUnbuilt(JsonFields& fields) {
  if (fields.Has("quantization_config"))
    return Refuse(fields, "quantization_config", "quantised models are not built");
  for (const char* experts : {"num_local_experts", "num_experts", "n_routed_experts"})
    if (fields.IntOr(experts, 0, 0, kMaxInt) > 0)
      return Refuse(fields, experts, "models with experts are not built");
  if (fields.Has("sliding_window") && fields.BoolOr("use_sliding_window", true))
    return Refuse(fields, "sliding_window", "sliding windows are not built");
  if (fields.Has("layer_types"))
    for (const json& type : *fields.Find("layer_types"))
      if (type != "full_attention")
        return Refuse(fields, "layer_types", "only full_attention is built");
  for (const char* name : {"is_encoder_decoder", "add_cross_attention"})
    if (fields.BoolOr(name, false))
      return Refuse(fields, name, "only decoders without cross-attention are built");
  return fields.status();
}

Status ParseDType(JsonFields& fields, std::optional<DType>& out) {
  const char* const field = fields.Has("dtype") ? "dtype" : "torch_dtype";
  std::string name = fields.StringOr(field, "");
  RETURN_IF_ERROR(fields.status());
  if (name.empty()) return Status::Ok();
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float64") name = "float32";
  out = DTypeFromName(name);
  if (out != DType::kF32 && out != DType::kF16 && out != DType::kBF16)
    return Refuse(fields, field, "float32, bfloat16 and float16 are built");
  return Status::Ok();
}

Status ParseActivation(JsonFields& fields, const char* name, std::string_view fallback,
                       ModelConfig& config) {
  const std::string activation = fields.StringOr(name, fallback);
  RETURN_IF_ERROR(fields.status());
  const auto kind = model::ActivationFromName(activation);
  if (!kind) return Refuse(fields, name, "relu, silu and the tanh forms of gelu are built");
  if (activation == "gelu")
    logging::Warning("gelu is computed by its tanh approximation", {{"path", fields.where()}});
  config.activation = *kind;
  return Status::Ok();
}

// Older files: rope_theta and rope_scaling. Newer ones: rope_parameters with both.
Status ParseRope(JsonFields& fields, ModelConfig& config) {
  config.rope_theta = fields.NumberOr("rope_theta", 10000.0);
  if (fields.NumberOr("partial_rotary_factor", 1.0) != 1.0)
    return Refuse(fields, "partial_rotary_factor", "only 1 is built");
  RETURN_IF_ERROR(fields.status());
  const char* const name = fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json* dictionary = fields.Find(name);
  if (dictionary == nullptr) return Status::Ok();
  const std::string where = fmt::format("{}: {}", fields.where(), name);
  ASSIGN_OR_RETURN(config.rope_scaling, model::RopeScalingFromJson(*dictionary, where));
  JsonFields rope(where, *dictionary);
  for (const auto& [key, value] : dictionary->items())
    if (value.is_object()) return Refuse(rope, key, "one rope for all layers is built");
  if (rope.NumberOr("partial_rotary_factor", 1.0) != 1.0)
    return Refuse(rope, "partial_rotary_factor", "only 1 is built");
  config.rope_theta = rope.NumberOr("rope_theta", config.rope_theta);
  return rope.status();
}

Status ParseLlama(JsonFields& fields, ModelConfig& config) {
  const auto number = [&](const char* name, int64_t fallback) {
    return static_cast<int>(fields.IntOr(name, fallback, 1, kMaxInt));
  };
  config.vocab_size = static_cast<int>(fields.Int("vocab_size", 1, kMaxInt));
  config.hidden_size = static_cast<int>(fields.Int("hidden_size", 1, kMaxInt));
  config.num_layers = static_cast<int>(fields.Int("num_hidden_layers", 1, kMaxInt));
  config.num_heads = static_cast<int>(fields.Int("num_attention_heads", 1, kMaxInt));
  config.intermediate_size = static_cast<int>(fields.Int("intermediate_size", 1, kMaxInt));
  config.num_kv_heads = number("num_key_value_heads", config.num_heads);
  config.max_position_embeddings = number("max_position_embeddings", 2048);
  if (!fields.Has("head_dim") && config.hidden_size % config.num_heads != 0)
    fields.Fail("hidden_size", fmt::format("got {}, no multiple of num_attention_heads {}, and "
                                           "there is no head_dim",
                                           config.hidden_size, config.num_heads));
  config.head_dim = number("head_dim", config.hidden_size / config.num_heads);
  config.norm_eps = static_cast<float>(fields.NumberOr("rms_norm_eps", 1e-6));
  config.attention_bias = fields.BoolOr("attention_bias", false);
  config.mlp_bias = fields.BoolOr("mlp_bias", false);
  config.tied_embeddings = fields.BoolOr("tie_word_embeddings", false);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(ParseActivation(fields, "hidden_act", "silu", config));
  return ParseRope(fields, config);
}

Status ParseGpt2(JsonFields& fields, ModelConfig& config) {
  config.vocab_size = static_cast<int>(fields.IntOr("vocab_size", 50257, 1, kMaxInt));
  config.hidden_size = static_cast<int>(fields.IntOr("n_embd", 768, 1, kMaxInt / 4));
  config.num_layers = static_cast<int>(fields.IntOr("n_layer", 12, 1, kMaxInt));
  config.num_heads = static_cast<int>(fields.IntOr("n_head", 12, 1, kMaxInt));
  config.num_kv_heads = config.num_heads;
  config.intermediate_size =
      static_cast<int>(fields.IntOr("n_inner", int64_t{4} * config.hidden_size, 1, kMaxInt));
  config.max_position_embeddings = static_cast<int>(fields.IntOr("n_positions", 1024, 1, kMaxInt));
  if (config.hidden_size % config.num_heads != 0)
    fields.Fail("n_embd", fmt::format("got {}, no multiple of n_head {}", config.hidden_size,
                                      config.num_heads));
  config.head_dim = config.hidden_size / config.num_heads;
  config.norm_eps = static_cast<float>(fields.NumberOr("layer_norm_epsilon", 1e-5));
  config.tied_embeddings = fields.BoolOr("tie_word_embeddings", true);
  if (!fields.BoolOr("scale_attn_weights", true))
    return Refuse(fields, "scale_attn_weights", "only true is built");
  if (fields.BoolOr("scale_attn_by_inverse_layer_idx", false))
    return Refuse(fields, "scale_attn_by_inverse_layer_idx", "only false is built");
  RETURN_IF_ERROR(fields.status());
  return ParseActivation(fields, "activation_function", "gelu_new", config);
}

// Ids that `object` has replace those in `config`.
Status ParseTokenIds(const json& object, const std::string& where, ModelConfig& config) {
  Status status;
  if (auto ids = model::TokenIds(object, where, "eos_token_id", status); !ids.empty())
    config.end_ids = std::move(ids);
  if (const auto id = model::OptionalTokenId(object, where, "bos_token_id", status))
    config.bos_id = id;
  if (const auto id = model::OptionalTokenId(object, where, "pad_token_id", status))
    config.pad_id = id;
  return status;
}

}  // namespace

Result<HfConfig> ParseHfConfig(const json& object, const std::string& where) {
  JsonFields fields(where, object);
  ASSIGN_OR_RETURN(const std::string architecture, Architecture(fields));
  Result<ModelConfig> family = model::FamilyOf(architecture);
  if (!family.ok()) return family.status().WithPrefix(where);
  HfConfig hf{.config = *std::move(family), .dtype = std::nullopt};
  RETURN_IF_ERROR(RefuseUnbuilt(fields));
  RETURN_IF_ERROR(ParseDType(fields, hf.dtype));
  RETURN_IF_ERROR(hf.config.position == model::PositionKind::kLearnedAbsolute
                      ? ParseGpt2(fields, hf.config)
                      : ParseLlama(fields, hf.config));
  RETURN_IF_ERROR(ParseTokenIds(object, where, hf.config));
  if (const Status valid = model::Validate(hf.config); !valid.ok()) return valid.WithPrefix(where);
  return hf;
}

Result<HfConfig> ReadHfConfig(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / artifact::kConfigFile;
  ASSIGN_OR_RETURN(const json object, artifact::ReadJsonFile(path));
  ASSIGN_OR_RETURN(HfConfig hf, ParseHfConfig(object, path.string()));
  const std::filesystem::path generation = dir / kGenerationConfig;
  if (FileExists(generation)) {
    ASSIGN_OR_RETURN(const json ids, artifact::ReadJsonFile(generation));
    RETURN_IF_ERROR(ParseTokenIds(ids, generation.string(), hf.config));
  }
  return hf;
}

}  // namespace inflight::builder

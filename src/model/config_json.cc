// SPDX-License-Identifier: Apache-2.0
#include "model/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "artifact/json_file.h"
#include "base/log.h"

namespace inflight::model {
namespace {

using artifact::JsonFields;
using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;
constexpr char kFp8[] = "FP8";  // of kv_cache_quant_algo
constexpr std::string_view kHead = "lm_head";

std::string_view ActivationName(ops::ActivationKind kind) {
  switch (kind) {
    case ops::ActivationKind::kRelu:
      return "relu";
    case ops::ActivationKind::kGeluTanh:
      return "gelu";
    case ops::ActivationKind::kSilu:
      return "silu";
    case ops::ActivationKind::kNone:
      break;
  }
  return "none";
}

// Modules that a checkpoint may say it left in the model's dtype: those that are never quantised
// here. Patterns as upstream writes them, with or without wildcards and prefixes.
std::string_view LastNameOf(std::string_view pattern) {
  while (pattern.starts_with('*')) pattern.remove_prefix(1);
  while (pattern.ends_with('*')) pattern.remove_suffix(1);
  const size_t dot = pattern.rfind('.');
  if (dot != std::string_view::npos) pattern.remove_prefix(dot + 1);
  return pattern;
}

bool IsNeverQuantized(std::string_view module) {
  for (const char* name : {"router", "vocab_embedding", "position_embedding", "block_embedding",
                           "ln_f", "ln_embed", "input_layernorm", "post_layernorm"})
    if (module == name) return true;
  return false;
}

// Without a list lm_head is left out, as by upstream.
Status ParseExcluded(JsonFields& quantization, ModelConfig& config) {
  const json* excluded = quantization.Find("exclude_modules");
  if (excluded == nullptr || config.quant_algo == QuantAlgo::kNone) return Status::Ok();
  bool has_head = false;
  for (const json& module : excluded->is_array() ? *excluded : json::array({*excluded})) {
    const std::string pattern = module.is_string() ? module.get<std::string>() : "";
    has_head |= LastNameOf(pattern) == kHead;
    if (LastNameOf(pattern) != kHead && !IsNeverQuantized(LastNameOf(pattern)))
      return Unimplemented(
          fmt::format("{}: exclude_modules: got {}, all linears of the layers are quantised",
                      quantization.where(), artifact::Abbreviate(module)));
  }
  config.quantize_lm_head = !has_head;
  return Status::Ok();
}

Status ParseQuantization(JsonFields& fields, ModelConfig& config) {
  const json* object = fields.FindObject("quantization");
  if (object == nullptr) return fields.status();
  const std::string where = fields.where() + ": quantization";
  JsonFields quantization(where, *object);
  const std::string name = quantization.StringOr("quant_algo", "");
  RETURN_IF_ERROR(quantization.status());
  const std::optional<QuantAlgo> algo = QuantAlgoFromName(name);
  if (!algo)
    return Unimplemented(fmt::format(
        "{}: quant_algo: got {}, only null, W8A16, W4A16 and FP8_PER_CHANNEL_PER_TOKEN are built",
        where, artifact::Abbreviate(*quantization.Find("quant_algo"))));
  config.quant_algo = *algo;
  const std::string kv_name = quantization.StringOr("kv_cache_quant_algo", "");
  RETURN_IF_ERROR(quantization.status());
  if (!kv_name.empty() && kv_name != kFp8)
    return Unimplemented(
        fmt::format("{}: kv_cache_quant_algo: got {}, only null and FP8 are built", where,
                    artifact::Abbreviate(*quantization.Find("kv_cache_quant_algo"))));
  config.fp8_kv_cache = kv_name == kFp8;
  for (const char* flag : {"has_zero_point", "pre_quant_scale"})
    if (quantization.BoolOr(flag, false))
      return Unimplemented(fmt::format("{}: {}: got true, only false is built", where, flag));
  RETURN_IF_ERROR(quantization.status());
  return ParseExcluded(quantization, config);
}

// Fields that change the computation and must have the one value that is built.
Status RefuseUnbuilt(JsonFields& fields) {
  const auto refuse = [&](std::string_view name, const json& value, std::string_view built) {
    return Unimplemented(fmt::format("{}: {}: got {}, only {} is built", fields.where(), name,
                                     artifact::Abbreviate(value), built));
  };
  for (const char* name : {"qk_layernorm", "residual_mlp", "apply_query_key_layer_scaling",
                           "inner_layernorm", "norm_before_bmm1"})
    if (fields.BoolOr(name, false)) return refuse(name, true, "false");
  if (fields.NumberOr("q_scaling", 1.0) != 1.0)
    return refuse("q_scaling", *fields.Find("q_scaling"), "1");
  if (const json* experts = fields.FindObject("moe")) {
    JsonFields moe(fields.where() + ": moe", *experts);
    if (moe.IntOr("num_experts", 0, 0, kMaxInt) > 0)
      return refuse("moe", *experts, "a model without experts");
    RETURN_IF_ERROR(moe.status());
  }
  if (fields.Has("gpt_variant") && fields.StringOr("gpt_variant", "") != "gpt2")
    return refuse("gpt_variant", *fields.Find("gpt_variant"), "gpt2");
  if (fields.Has("embedding_scale"))
    return refuse("embedding_scale", *fields.Find("embedding_scale"), "null");
  return fields.status();
}

// Architectures of checkpoints that name a graph which is built (spec/engine.md 1.5.1); what sets
// them apart stands in fields of its own.
std::string_view GraphOf(std::string_view architecture) {
  for (const char* llama : {"MistralForCausalLM", "MixtralForCausalLM", "ArcticForCausalLM",
                            "InternLMForCausalLM", "InternLM2ForCausalLM", "SkyworkForCausalLM"})
    if (architecture == llama) return "LlamaForCausalLM";
  return architecture;
}

Status ParsePosition(JsonFields& fields, ModelConfig& config) {
  const bool is_learned = config.position == PositionKind::kLearnedAbsolute;
  const std::string kind =
      fields.StringOr("position_embedding_type", is_learned ? "learned_absolute" : "rope_gpt_neox");
  if (is_learned ? kind != "learned_absolute" : kind != "rope_gpt_neox" && kind != "rope_gptj")
    return Unimplemented(fmt::format(
        "{}: position_embedding_type: got {}, only {} is built for {}", fields.where(), kind,
        is_learned ? "learned_absolute" : "rope_gpt_neox or rope_gptj", config.architecture));
  if (is_learned) return fields.status();
  config.position = kind == "rope_gptj" ? PositionKind::kRopeGptj : PositionKind::kRopeNeox;
  config.rope_theta = fields.NumberOr("rotary_base", 10000.0);
  config.rotary_fraction = fields.NumberOr("rotary_pct", 1.0);
  if (const json* scaling = fields.Find("rotary_scaling")) {
    ASSIGN_OR_RETURN(config.rope_scaling,
                     RopeScalingFromJson(*scaling, fields.where() + ": rotary_scaling"));
  }
  return fields.status();
}

}  // namespace

Result<ModelConfig> FamilyOf(const std::string& architecture) {
  ModelConfig config;
  config.architecture = architecture;
  if (architecture == "LlamaForCausalLM") return config;  // the defaults are Llama's
  if (architecture == "GPT2LMHeadModel" || architecture == "GPTForCausalLM") {
    config.architecture = "GPT2LMHeadModel";
    config.norm = ops::NormKind::kLayerNorm;
    config.activation = ops::ActivationKind::kGeluTanh;
    config.gated_mlp = false;
    config.attention_bias = true;
    config.mlp_bias = true;
    config.position = PositionKind::kLearnedAbsolute;
    return config;
  }
  return Unimplemented(
      fmt::format("architecture {} is not built; LlamaForCausalLM and GPT2LMHeadModel are",
                  artifact::Abbreviate(architecture)));
}

std::optional<ops::ActivationKind> ActivationFromName(std::string_view name) {
  if (name == "relu") return ops::ActivationKind::kRelu;
  if (name == "silu" || name == "swish") return ops::ActivationKind::kSilu;
  for (const char* gelu : {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"})
    if (name == gelu) return ops::ActivationKind::kGeluTanh;
  return std::nullopt;
}

Result<RopeScaling> RopeScalingFromJson(const json& dictionary, const std::string& where) {
  if (!dictionary.is_object())
    return InvalidArgument(
        fmt::format("{}: got {}, an object is needed", where, artifact::Abbreviate(dictionary)));
  JsonFields fields(where, dictionary);
  RopeScaling scaling;
  const std::string kind = fields.StringOr("rope_type", fields.StringOr("type", "default"));
  RETURN_IF_ERROR(fields.status());
  if (kind == "default") return scaling;
  if (kind == "linear")
    scaling.kind = RopeScaling::Kind::kLinear;
  else if (kind == "llama3")
    scaling.kind = RopeScaling::Kind::kLlama3;
  else if (kind == "dynamic")
    scaling.kind = RopeScaling::Kind::kDynamic;
  else
    return Unimplemented(
        fmt::format("{}: type {} is not built; default, linear, dynamic and llama3 are", where,
                    artifact::Abbreviate(kind)));
  if (kind != "llama3" && !fields.Has("factor")) fields.Fail("factor", "is missing");
  scaling.factor = fields.NumberOr("factor", 8.0);
  scaling.low_freq_factor = fields.NumberOr("low_freq_factor", 1.0);
  scaling.high_freq_factor = fields.NumberOr("high_freq_factor", 4.0);
  scaling.original_max_position_embeddings =
      static_cast<int>(fields.IntOr("original_max_position_embeddings", 8192, 1, kMaxInt));
  RETURN_IF_ERROR(fields.status());
  return scaling;
}

std::optional<TokenId> OptionalTokenId(const json& object, const std::string& where,
                                       std::string_view name, Status& status) {
  JsonFields fields(where, object);
  const std::optional<int64_t> id = fields.OptionalInt(name, -kMaxInt, kMaxInt);
  if (status.ok()) status = fields.status();
  if (!id || *id < 0) return std::nullopt;
  return static_cast<TokenId>(*id);
}

std::vector<TokenId> TokenIds(const json& object, const std::string& where, std::string_view name,
                              Status& status) {
  JsonFields fields(where, object);
  const json* value = fields.Find(name);
  if (value == nullptr) return {};
  std::vector<TokenId> ids;
  for (const json& element : value->is_array() ? *value : json::array({*value})) {
    const json one = {{name, element}};
    if (const auto id = OptionalTokenId(one, where, name, status)) ids.push_back(*id);
  }
  return ids;
}

Result<ModelConfig> ConfigFromCheckpoint(const json& object, const std::string& where) {
  JsonFields fields(where, object);
  const std::string architecture = fields.String("architecture");
  const std::string dtype_name = fields.String("dtype");
  RETURN_IF_ERROR(fields.status());
  Result<ModelConfig> family = FamilyOf(std::string(GraphOf(architecture)));
  if (!family.ok()) return family.status().WithPrefix(where);
  ModelConfig config = *std::move(family);
  RETURN_IF_ERROR(RefuseUnbuilt(fields));
  RETURN_IF_ERROR(ParseQuantization(fields, config));
  if (fields.StringOr("logits_dtype", "float32") != "float32")
    logging::Warning("logits are float32", {{"path", where}});

  const std::optional<DType> dtype = DTypeFromName(dtype_name);
  if (!dtype) return InvalidArgument(fmt::format("{}: dtype: '{}' is unknown", where, dtype_name));
  config.dtype = *dtype;
  const auto number = [&](const char* name) {
    return static_cast<int>(fields.Int(name, 1, kMaxInt));
  };
  const auto number_or = [&](const char* name, int64_t fallback) {
    return static_cast<int>(fields.IntOr(name, fallback, 1, kMaxInt));
  };
  config.vocab_size = number("vocab_size");
  config.hidden_size = number("hidden_size");
  config.num_layers = number("num_hidden_layers");
  config.num_heads = number("num_attention_heads");
  config.num_kv_heads = number_or("num_key_value_heads", config.num_heads);
  config.head_dim = number_or("head_size", config.hidden_size / config.num_heads);
  config.intermediate_size = number_or("intermediate_size", int64_t{4} * config.hidden_size);
  config.max_position_embeddings = number_or("max_position_embeddings", 2048);
  config.norm_eps = static_cast<float>(fields.NumberOr("norm_epsilon", 1e-5));
  config.tied_embeddings = fields.BoolOr("share_embedding_table", false);
  const bool is_gpt = config.position == PositionKind::kLearnedAbsolute;
  config.attention_bias = fields.BoolOr(is_gpt ? "bias" : "attn_bias", is_gpt);
  config.mlp_bias = fields.BoolOr(is_gpt ? "bias" : "mlp_bias", is_gpt);
  const std::string activation = fields.StringOr("hidden_act", "gelu");
  RETURN_IF_ERROR(fields.status());
  const auto kind = ActivationFromName(activation);
  if (!kind)
    return Unimplemented(
        fmt::format("{}: hidden_act: {} is not built", where, artifact::Abbreviate(activation)));
  config.activation = *kind;
  RETURN_IF_ERROR(ParsePosition(fields, config));

  Status status;
  config.end_ids = TokenIds(object, where, "eos_token_id", status);
  config.bos_id = OptionalTokenId(object, where, "bos_token_id", status);
  config.pad_id = OptionalTokenId(object, where, "pad_token_id", status);
  RETURN_IF_ERROR(status);
  if (const Status valid = Validate(config); !valid.ok()) return valid.WithPrefix(where);
  return config;
}

bool IsCheckpointField(std::string_view key) {
  static constexpr std::array<std::string_view, 39> kFields = {"architecture",
                                                               "dtype",
                                                               "logits_dtype",
                                                               "vocab_size",
                                                               "hidden_size",
                                                               "num_hidden_layers",
                                                               "num_attention_heads",
                                                               "num_key_value_heads",
                                                               "intermediate_size",
                                                               "head_size",
                                                               "hidden_act",
                                                               "norm_epsilon",
                                                               "position_embedding_type",
                                                               "max_position_embeddings",
                                                               "rotary_base",
                                                               "rotary_scaling",
                                                               "rotary_pct",
                                                               "mapping",
                                                               "quantization",
                                                               "use_parallel_embedding",
                                                               "embedding_sharding_dim",
                                                               "share_embedding_table",
                                                               "qk_layernorm",
                                                               "gpt_variant",
                                                               "bias",
                                                               "q_scaling",
                                                               "embedding_scale",
                                                               "apply_query_key_layer_scaling",
                                                               "inner_layernorm",
                                                               "norm_before_bmm1",
                                                               "moe",
                                                               "mlp_bias",
                                                               "attn_bias",
                                                               "residual_mlp",
                                                               "disable_weight_only_quant_plugin",
                                                               "remove_duplicated_kv_heads",
                                                               "eos_token_id",
                                                               "bos_token_id",
                                                               "pad_token_id"};
  return std::ranges::find(kFields, key) != kFields.end();
}

json ConfigToCheckpoint(const ModelConfig& config) {
  const bool is_learned = config.position == PositionKind::kLearnedAbsolute;
  json object = {
      {"architecture", config.architecture},
      {"dtype", DTypeName(config.dtype)},
      {"logits_dtype", "float32"},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"num_hidden_layers", config.num_layers},
      {"num_attention_heads", config.num_heads},
      {"num_key_value_heads", config.num_kv_heads},
      {"head_size", config.head_dim},
      {"intermediate_size", config.intermediate_size},
      {"hidden_act", ActivationName(config.activation)},
      {"norm_epsilon", config.norm_eps},
      {"max_position_embeddings", config.max_position_embeddings},
      {"mapping",
       {{"world_size", 1}, {"tp_size", 1}, {"pp_size", 1}, {"cp_size", 1}, {"gpus_per_node", 8}}},
      {"quantization", {{"quant_algo", nullptr}, {"kv_cache_quant_algo", nullptr}}},
      {"use_parallel_embedding", false},
      {"embedding_sharding_dim", 0},
      {"share_embedding_table", config.tied_embeddings},
      {"qk_layernorm", false},
      {"eos_token_id", config.end_ids},
  };
  if (config.quant_algo != QuantAlgo::kNone) {
    object["quantization"]["quant_algo"] = QuantAlgoName(config.quant_algo);
    // Upstream's name for plain rows, [out, in]: its plug-in's own layout fits one kind of GPU.
    if (ops::IsInteger(LinearDType(config))) object["disable_weight_only_quant_plugin"] = true;
  }
  if (config.fp8_kv_cache) object["quantization"]["kv_cache_quant_algo"] = kFp8;
  if (config.quantize_lm_head)
    object["quantization"]["exclude_modules"] = {"*vocab_embedding", "*position_embedding"};
  if (config.bos_id) object["bos_token_id"] = *config.bos_id;
  if (config.pad_id) object["pad_token_id"] = *config.pad_id;
  if (is_learned) {
    object["position_embedding_type"] = "learned_absolute";
    object["gpt_variant"] = "gpt2";
    object["bias"] = config.attention_bias;
    object["q_scaling"] = 1.0;
    return object;
  }
  object["position_embedding_type"] =
      config.position == PositionKind::kRopeGptj ? "rope_gptj" : "rope_gpt_neox";
  object["rotary_base"] = config.rope_theta;
  object["rotary_pct"] = config.rotary_fraction;
  object["attn_bias"] = config.attention_bias;
  object["mlp_bias"] = config.mlp_bias;
  const RopeScaling& scaling = config.rope_scaling;
  object["rotary_scaling"] = nullptr;
  if (scaling.kind == RopeScaling::Kind::kLinear)
    object["rotary_scaling"] = {{"type", "linear"}, {"factor", scaling.factor}};
  if (scaling.kind == RopeScaling::Kind::kDynamic)
    object["rotary_scaling"] = {{"type", "dynamic"}, {"factor", scaling.factor}};
  if (scaling.kind == RopeScaling::Kind::kLlama3)
    object["rotary_scaling"] = {
        {"type", "llama3"},
        {"factor", scaling.factor},
        {"low_freq_factor", scaling.low_freq_factor},
        {"high_freq_factor", scaling.high_freq_factor},
        {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
  return object;
}

}  // namespace inflight::model

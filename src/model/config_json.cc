// SPDX-License-Identifier: Apache-2.0
#include "model/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "artifact/json_file.h"
#include "artifact/printable.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/families/families.h"

namespace inflight::model {
namespace {

using artifact::JsonFields;
using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;
constexpr char kFp8[] = "FP8";  // of kv_cache_quant_algo
constexpr std::string_view kHead = "lm_head";

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
  for (const char* name :
       {"router", "vocab_embedding", "position_embedding", "block_embedding", "ln_f", "ln_embed",
        "input_layernorm", "post_layernorm", "post_attention_layernorm", "mlp_layernorm",
        "pre_feedforward_layernorm", "post_feedforward_layernorm", "q_layernorm", "k_layernorm"})
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

// Upstream's name, here of single linears alone.
constexpr std::string_view kMxfp4 = "W4A16_MXFP4";
constexpr std::string_view kGroupedFp8 = "W8A16_FP8_GROUPS";

// What stands beside the name of an algorithm.
Result<LinearForm> ParseGroups(JsonFields& quantization, QuantAlgo algo) {
  LinearForm form;
  form.has_offsets = quantization.BoolOr("has_zero_point", false);
  const bool has_factors = quantization.BoolOr("pre_quant_scale", false);
  RETURN_IF_ERROR(quantization.status());
  const char* const flag = has_factors                            ? "pre_quant_scale"
                           : form.has_offsets && !HasGroups(algo) ? "has_zero_point"
                                                                  : nullptr;
  if (flag != nullptr)
    return Unimplemented(
        fmt::format("{}: {}: got true, only false is supported", quantization.where(), flag));
  if (!HasGroups(algo)) return form;
  const int64_t size = quantization.IntOr("group_size", kDefaultGroupSize, -1, kMaxInt);
  if (size == 0) quantization.Fail("group_size", "got 0, -1 or the columns of a group are needed");
  RETURN_IF_ERROR(quantization.status());
  form.group_size = static_cast<int>(std::max<int64_t>(size, 0));
  return form;
}

// This project's own: of linears whose scales are not float32.
Result<ScaleBlocks> ParseScaleBlocks(JsonFields& fields) {
  const json* const object = fields.FindObject("scale_blocks");
  RETURN_IF_ERROR(fields.status());
  if (object == nullptr) return ScaleBlocks();
  JsonFields blocks(fields.where() + ": scale_blocks", *object);
  const ScaleBlocks parsed = {
      .groups = static_cast<int>(blocks.Int("groups", 1, ScaleBlocks::kMaxGroups)),
      .middle = static_cast<int>(blocks.IntOr("middle", 0, 0, 128))};
  RETURN_IF_ERROR(blocks.status());
  return parsed;
}

// Upstream's list of a model whose linears are of several forms. What it leaves out is plain.
Status ParseQuantizedLayers(JsonFields& quantization, ModelConfig& config) {
  const json* const layers = quantization.FindObject("quantized_layers");
  RETURN_IF_ERROR(quantization.status());
  if (layers == nullptr) return Status::Ok();
  for (const auto& [name, object] : layers->items()) {
    const std::string where =
        fmt::format("{}: quantized_layers: {}", quantization.where(), artifact::Printable(name));
    if (!object.is_object())
      return InvalidArgument(
          fmt::format("{}: got {}, an object is needed", where, artifact::Abbreviate(object)));
    JsonFields fields(where, object);
    const std::string algo_name = fields.String("quant_algo");
    RETURN_IF_ERROR(fields.status());
    if (algo_name == kMxfp4) {
      config.slot_forms.emplace(name,
                                LinearForm{.dtype = DType::kF4E2M1, .group_size = kMxGroupSize});
      continue;
    }
    if (algo_name == kGroupedFp8) {
      config.slot_forms.emplace(name,
                                LinearForm{.dtype = DType::kF8E4M3, .group_size = kFp8GroupSize});
      continue;
    }
    const std::optional<QuantAlgo> algo = QuantAlgoFromName(algo_name);
    if (algo != QuantAlgo::kW8A16 && algo != QuantAlgo::kW4A16 && !(algo && HasGroups(*algo)))
      return Unimplemented(
          fmt::format("{}: quant_algo: got {}, W8A16, W4A16, W8A16_GPTQ, W4A16_GPTQ, W4A16_AWQ, "
                      "W4A16_MXFP4 and "
                      "W8A16_FP8_GROUPS are supported",
                      where, artifact::Printable(algo_name)));
    ASSIGN_OR_RETURN(LinearForm form, ParseGroups(fields, *algo));
    form.has_order = fields.BoolOr("desc_act", false);
    RETURN_IF_ERROR(fields.status());
    ASSIGN_OR_RETURN(form.blocks, ParseScaleBlocks(fields));
    const bool is_int8 = *algo == QuantAlgo::kW8A16 || *algo == QuantAlgo::kW8A16Gptq;
    form.dtype = is_int8 ? DType::kI8 : DType::kI4;
    config.slot_forms.emplace(name, form);
  }
  return Status::Ok();
}

json FormToJson(const LinearForm& form) {
  if (form.dtype == DType::kF4E2M1) return {{"quant_algo", kMxfp4}};
  if (form.is_grouped_fp8()) return {{"quant_algo", kGroupedFp8}};
  const bool is_int8 = form.dtype == DType::kI8;
  if (!form.has_groups())
    return {{"quant_algo", QuantAlgoName(is_int8 ? QuantAlgo::kW8A16 : QuantAlgo::kW4A16)}};
  json object = {
      {"quant_algo", QuantAlgoName(is_int8 ? QuantAlgo::kW8A16Gptq : QuantAlgo::kW4A16Gptq)},
      {"group_size", form.group_size == 0 ? -1 : form.group_size},
      {"has_zero_point", form.has_offsets}};
  if (form.has_order) object["desc_act"] = true;
  if (!form.blocks.empty())
    object["scale_blocks"] = {{"groups", form.blocks.groups}, {"middle", form.blocks.middle}};
  return object;
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
        "{}: quant_algo: got {}, only null, W8A16, W4A16, W8A16_GPTQ, W4A16_GPTQ, W4A16_AWQ, "
        "MIXED_PRECISION, FP8_PER_CHANNEL_PER_TOKEN and, of checkpoints, FP8, "
        "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN and W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN are "
        "supported",
        where, artifact::Abbreviate(*quantization.Find("quant_algo"))));
  config.quant_algo = *algo;
  const std::string kv_name = quantization.StringOr("kv_cache_quant_algo", "");
  RETURN_IF_ERROR(quantization.status());
  if (!kv_name.empty() && kv_name != kFp8)
    return Unimplemented(
        fmt::format("{}: kv_cache_quant_algo: got {}, only null and FP8 are supported", where,
                    artifact::Abbreviate(*quantization.Find("kv_cache_quant_algo"))));
  config.fp8_kv_cache = kv_name == kFp8;
  if (*algo == QuantAlgo::kMixedPrecision)
    RETURN_IF_ERROR(ParseQuantizedLayers(quantization, config));
  ASSIGN_OR_RETURN(const LinearForm form, ParseGroups(quantization, config.quant_algo));
  config.group_size = form.group_size;
  config.has_zero_point = form.has_offsets;
  return ParseExcluded(quantization, config);
}

// Keys of a checkpoint's config.json that are no row of any family.
constexpr std::string_view kOtherKeys[] = {"architecture",
                                           "dtype",
                                           "logits_dtype",
                                           "mapping",
                                           "quantization",
                                           "use_parallel_embedding",
                                           "embedding_sharding_dim",
                                           "disable_weight_only_quant_plugin",
                                           "remove_duplicated_kv_heads",
                                           "eos_token_id",
                                           "bos_token_id",
                                           "pad_token_id",
                                           "num_medusa_heads",
                                           "num_medusa_layers",
                                           "max_draft_len"};

// Upstream's word for a Llama with heads. What max_draft_len says beside it is decided when the
// model is built and loaded.
constexpr std::string_view kMedusaArchitecture = "MedusaForCausalLM";
constexpr int kUpstreamMaxDraftLen = 63;

Status ParseMedusa(JsonFields& fields, std::string_view architecture, ModelConfig& config) {
  config.num_medusa_heads =
      static_cast<int>(fields.IntOr("num_medusa_heads", 0, 0, kMaxMedusaHeads));
  config.num_medusa_layers =
      static_cast<int>(fields.IntOr("num_medusa_layers", 1, 1, kMaxMedusaLayers));
  RETURN_IF_ERROR(fields.status());
  const bool has_heads = config.num_medusa_heads > 0;
  if (has_heads == (architecture == kMedusaArchitecture)) return Status::Ok();
  return InvalidArgument(fmt::format(
      "{}: num_medusa_heads: got {} of architecture {}; 1 or more stand beside {}, none beside "
      "another",
      fields.where(), config.num_medusa_heads, architecture, kMedusaArchitecture));
}

}  // namespace

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
  const Result<const Family*> family = FamilyOf(architecture);
  if (!family.ok()) return family.status().WithPrefix(where);
  ModelConfig config = (*family)->config;
  RETURN_IF_ERROR(ParseQuantization(fields, config));
  RETURN_IF_ERROR(ParseMedusa(fields, architecture, config));
  if (fields.StringOr("logits_dtype", "float32") != "float32")
    logging::Warning("logits are float32", {{"path", where}});

  const std::optional<DType> dtype = DTypeFromName(dtype_name);
  if (!dtype) return InvalidArgument(fmt::format("{}: dtype: '{}' is unknown", where, dtype_name));
  config.dtype = *dtype;
  for (const Field& field : (*family)->checkpoint) RETURN_IF_ERROR(field.read(fields, config));

  Status status;
  config.end_ids = TokenIds(object, where, "eos_token_id", status);
  config.bos_id = OptionalTokenId(object, where, "bos_token_id", status);
  config.pad_id = OptionalTokenId(object, where, "pad_token_id", status);
  RETURN_IF_ERROR(status);
  if (const Status valid = Validate(config); !valid.ok()) return valid.WithPrefix(where);
  return config;
}

bool IsCheckpointField(std::string_view key) {
  if (std::ranges::count(kOtherKeys, key) > 0) return true;
  return std::ranges::any_of(Families(), [&](const Family& family) {
    return std::ranges::find(family.checkpoint, key, &Field::name) != family.checkpoint.end();
  });
}

json ConfigToCheckpoint(const ModelConfig& config) {
  json object = {
      {"architecture", config.architecture},
      {"dtype", DTypeName(config.dtype)},
      {"logits_dtype", "float32"},
      {"mapping",
       {{"world_size", 1}, {"tp_size", 1}, {"pp_size", 1}, {"cp_size", 1}, {"gpus_per_node", 8}}},
      {"quantization", {{"quant_algo", nullptr}, {"kv_cache_quant_algo", nullptr}}},
      {"use_parallel_embedding", false},
      {"embedding_sharding_dim", 0},
      {"eos_token_id", config.end_ids},
  };
  const Result<const Family*> family = FamilyOf(config.architecture);
  CHECK(family.ok());
  for (const Field& field : (*family)->checkpoint)
    if (field.write) field.write(config, object);
  if (config.quant_algo != QuantAlgo::kNone) {
    json& quantization = object["quantization"];
    quantization["quant_algo"] = QuantAlgoName(config.quant_algo);
    if (HasGroups(config.quant_algo)) quantization.update(FormToJson(FormOf(config, {})));
    if (config.quant_algo == QuantAlgo::kMixedPrecision)
      for (const auto& [name, form] : config.slot_forms)
        quantization["quantized_layers"][name] = FormToJson(form);
    // Upstream's name for plain rows, [out, in]: its plug-in's own layout fits one kind of GPU.
    if (ops::IsInteger(LinearDType(config)) || config.quant_algo == QuantAlgo::kMixedPrecision)
      object["disable_weight_only_quant_plugin"] = true;
  }
  if (config.fp8_kv_cache) object["quantization"]["kv_cache_quant_algo"] = kFp8;
  if (config.quantize_lm_head)
    object["quantization"]["exclude_modules"] = {"*vocab_embedding", "*position_embedding"};
  if (config.num_medusa_heads > 0) {
    object["architecture"] = kMedusaArchitecture;
    object["num_medusa_heads"] = config.num_medusa_heads;
    object["num_medusa_layers"] = config.num_medusa_layers;
    object["max_draft_len"] = kUpstreamMaxDraftLen;
  }
  if (config.bos_id) object["bos_token_id"] = *config.bos_id;
  if (config.pad_id) object["pad_token_id"] = *config.pad_id;
  return object;
}

}  // namespace inflight::model

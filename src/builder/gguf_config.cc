// SPDX-License-Identifier: Apache-2.0
#include "builder/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "artifact/json_file.h"
#include "artifact/printable.h"
#include "base/status_macros.h"
#include "model/families/families.h"
#include "model/rope.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using artifact::GgufModel;
using artifact::StoredTensor;
using gguf::Metadata;
using model::ModelConfig;
using nlohmann::json;

constexpr char kRopeFactors[] = "rope_freqs.weight";
constexpr char kLongFactors[] = "rope_factors_long.weight";
constexpr char kShortFactors[] = "rope_factors_short.weight";

// Arrays of numbers and flags are lists, of one for each layer at most; other arrays are texts that
// say what they are.
json ToJson(const Metadata& metadata, std::string_view key, const gguf::Value& value) {
  if (const auto* array = std::get_if<gguf::Array>(&value)) {
    if (array->size > uint64_t{model::kMaxLayers}) return gguf::Describe(value);
    const auto ints = metadata.Ints(key);
    if (!ints.ok()) return gguf::Describe(value);
    return **ints;
  }
  if (const auto* text = std::get_if<std::string_view>(&value)) return std::string(*text);
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value)) return *number;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::get<bool>(value);
}

// The entries under "`architecture`.", without that.
json FieldsOf(const Metadata& metadata, std::string_view architecture) {
  json fields = json::object();
  const std::string prefix = fmt::format("{}.", architecture);
  for (const auto& [key, value] : metadata.entries())
    if (key.starts_with(prefix))
      fields[std::string(key.substr(prefix.size()))] = ToJson(metadata, key, value);
  return fields;
}

Status RefuseUnread(const json& fields, const model::GgufForm& form, const std::string& where) {
  for (const auto& [name, value] : fields.items())
    if (std::ranges::find(form.fields, name, &model::Field::name) == form.fields.end())
      return Unimplemented(fmt::format("{}: {}: got {}, the key is not supported", where,
                                       artifact::Printable(name), artifact::Abbreviate(value)));
  return Status::Ok();
}

// Whether `fields`, of an architecture, are a model's with experts.
bool HasExperts(const json& fields) {
  const auto count = fields.find("expert_count");
  return count != fields.end() && count->is_number() && *count > 0;
}

Status CheckKind(const Metadata& metadata) {
  ASSIGN_OR_RETURN(const auto type, metadata.Text("general.type"));
  if (type.value_or("model") == "model") return Status::Ok();
  return Unimplemented(fmt::format("{}: general.type: got {}, model is supported", metadata.where(),
                                   artifact::Printable(*type)));
}

// The stored name of a checkpoint's tensor, of the first layer where it is one of a layer.
std::string StoredName(const model::TensorNames& names, std::string_view checkpoint,
                       std::string_view suffix) {
  for (const model::TensorRow& row : names.layer_rows)
    if (row.checkpoint == checkpoint)
      return fmt::format("{}0.{}{}", names.layer_prefix, row.stored.front(), suffix);
  for (const model::TensorRow& row : names.model_rows)
    if (row.checkpoint == checkpoint) return fmt::format("{}{}", row.stored.front(), suffix);
  return {};
}

void ReadTensorFacts(const artifact::TensorSet& tensors, const model::GgufForm& form,
                     ModelConfig& config) {
  const model::TensorNames& names = form.tensors;
  const auto has = [&](std::string_view checkpoint) {
    return tensors.Find(StoredName(names, checkpoint, ".bias")) != nullptr;
  };
  config.qkv_bias = has("attention.qkv");
  config.dense_bias = has("attention.dense");
  config.mlp_bias = config.num_experts == 0 && has("mlp.fc");
  config.tied_embeddings = tensors.Find(fmt::format("{}.weight", names.head)) == nullptr;
  if (!form.attention_norm.empty())
    config.has_shared_norm = tensors.Find(fmt::format("{}0.{}.weight", names.layer_prefix,
                                                      form.attention_norm)) == nullptr;
}

// A factor for each rotated pair.
Result<std::vector<double>> FactorsOf(const GgufModel& model, const char* name,
                                      const ModelConfig& config) {
  const std::string what = fmt::format("{}: {}", model.metadata.where(), name);
  const StoredTensor* const tensor = model.tensors.Find(name);
  if (tensor == nullptr) return InvalidArgument(what + ": is missing");
  const int64_t num_pairs = model::RotaryDim(config) / 2;
  if (tensor->dtype != DType::kF32 || tensor->codec != nullptr || tensor->shape != Shape{num_pairs})
    return InvalidArgument(fmt::format("{}: got {} {}, float32 [{}] is needed", what,
                                       DTypeName(tensor->dtype), tensor->shape.ToString(),
                                       num_pairs));
  std::vector<double> factors;
  for (int64_t i = 0; i < num_pairs; ++i)
    factors.push_back(LoadFloat(tensor->data.data(), DType::kF32, i));
  return factors;
}

// longrope's factors, by which llama.cpp knows it whatever rope.scaling.type says; the keys have
// the original length, and what cosines and sines are times.
Status ReadLongRope(const GgufModel& model, const std::string& where, ModelConfig& config) {
  using Kind = model::RopeScaling::Kind;
  model::RopeScaling& scaling = config.rope_scaling;
  const bool has_factors =
      model.tensors.Find(kLongFactors) != nullptr || model.tensors.Find(kShortFactors) != nullptr;
  if (!has_factors && scaling.kind != Kind::kLongRope) {
    if (scaling.kind != Kind::kNone) return Status::Ok();
    if (scaling.attention_factor.value_or(1) != 1)
      return Unimplemented(
          fmt::format("{}: rope.scaling.attn_factor: got {}, only 1 is supported but of longrope",
                      where, *scaling.attention_factor));
    scaling = {};
    return Status::Ok();
  }
  if (scaling.kind != Kind::kLongRope && scaling.kind != Kind::kNone)
    return InvalidArgument(fmt::format(
        "{}: rope.scaling.type: is another than longrope, and there is {}", where, kLongFactors));
  scaling.kind = Kind::kLongRope;
  scaling.factor = 0;
  if (scaling.original_max_position_embeddings == 0)
    return InvalidArgument(where + ": rope.scaling.original_context_length: is missing");
  ASSIGN_OR_RETURN(scaling.short_factors, FactorsOf(model, kShortFactors, config));
  ASSIGN_OR_RETURN(scaling.long_factors, FactorsOf(model, kLongFactors, config));
  return Status::Ok();
}

// Llama 3's rule as its factors: what each frequency is divided by. The file has no other trace of
// it; the rule's numbers are those of the published models, and the factor of the longest
// wavelength is the rule's own.
Status ReadRopeFactors(const GgufModel& model, ModelConfig& config) {
  const StoredTensor* tensor = model.tensors.Find(kRopeFactors);
  if (tensor == nullptr) return Status::Ok();
  const std::string what = fmt::format("{}: {}", model.metadata.where(), kRopeFactors);
  const int64_t num_pairs = model::RotaryDim(config) / 2;
  if (tensor->dtype != DType::kF32 || tensor->codec != nullptr || tensor->shape != Shape{num_pairs})
    return InvalidArgument(fmt::format("{}: got {} {}, float32 [{}] is needed", what,
                                       DTypeName(tensor->dtype), tensor->shape.ToString(),
                                       num_pairs));
  if (config.rope_scaling.kind != model::RopeScaling::Kind::kNone)
    return InvalidArgument(what + ": stands beside rope.scaling.type, one of them is needed");
  const auto factor_of = [&](int64_t i) { return LoadFloat(tensor->data.data(), DType::kF32, i); };
  float largest = 1;
  for (int64_t i = 0; i < num_pairs; ++i) largest = std::max(largest, factor_of(i));
  const std::vector<float> plain = model::InverseFrequencies(config);
  if (largest > 1)
    config.rope_scaling = {.kind = model::RopeScaling::Kind::kLlama3, .factor = largest};
  const std::vector<float> scaled = model::InverseFrequencies(config);
  constexpr float kTolerance = 1e-4F;  // of factors that were computed in float32
  for (int64_t i = 0; i < num_pairs; ++i) {
    const float expected = plain[static_cast<size_t>(i)] / scaled[static_cast<size_t>(i)];
    if (!(std::abs(factor_of(i) - expected) <= kTolerance * expected))
      return Unimplemented(fmt::format(
          "{}: element {}: got {}, {} is needed: only factors of Llama 3's rule with "
          "low_freq_factor 1, high_freq_factor 4 and original length 8192 are supported",
          what, i, factor_of(i), expected));
  }
  return Status::Ok();
}

Result<std::optional<TokenId>> IdOf(const Metadata& metadata, std::string_view name,
                                    int vocab_size) {
  ASSIGN_OR_RETURN(const auto id, metadata.SpecialId(name, vocab_size));
  return id ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
}

// What chat models end their turns with, whatever the file calls its end of text. Where there is a
// <|call|>, <|end|> ends but a message (openai/harmony).
constexpr std::string_view kTurnEnds[] = {"<|eot_id|>", "<|im_end|>",    "<end_of_turn>",
                                          "<|end|>",    "<|endoftext|>", "<|end_of_text|>",
                                          "<|call|>",   "<|return|>"};
constexpr std::string_view kEndOfCall = "<|call|>";
constexpr std::string_view kEndOfMessage = "<|end|>";

Status ReadTokenIds(const Metadata& metadata, ModelConfig& config) {
  for (const char* name : {"eos", "eot", "eom"}) {
    ASSIGN_OR_RETURN(const auto id, IdOf(metadata, name, config.vocab_size));
    if (id && std::ranges::find(config.end_ids, *id) == config.end_ids.end())
      config.end_ids.push_back(*id);
  }
  ASSIGN_OR_RETURN(config.bos_id, IdOf(metadata, "bos", config.vocab_size));
  ASSIGN_OR_RETURN(config.pad_id, IdOf(metadata, "padding", config.vocab_size));
  ASSIGN_OR_RETURN(const auto tokens,
                   metadata.Texts(fmt::format("{}tokens", gguf::kTokenizerKeys)));
  // Of another number the tokenizer is refused.
  const std::string types_key = fmt::format("{}token_type", gguf::kTokenizerKeys);
  if (!tokens || metadata.ArraySize(types_key) != tokens->size()) return Status::Ok();
  ASSIGN_OR_RETURN(const auto types, metadata.Ints(types_key));
  const size_t count =
      std::min({tokens->size(), types->size(), static_cast<size_t>(config.vocab_size)});
  const bool has_messages = std::ranges::find(*tokens, kEndOfCall) != tokens->end();
  std::array<bool, std::size(kTurnEnds)> is_found = {};
  for (size_t i = 0; i < count; ++i) {
    if ((*types)[i] != gguf::kControlToken) continue;
    const auto* const text = std::ranges::find(kTurnEnds, (*tokens)[i]);
    if (text == std::end(kTurnEnds) || (has_messages && *text == kEndOfMessage)) continue;
    if (std::exchange(is_found[static_cast<size_t>(text - std::begin(kTurnEnds))], true)) continue;
    const auto id = static_cast<TokenId>(i);
    if (std::ranges::find(config.end_ids, id) == config.end_ids.end()) config.end_ids.push_back(id);
  }
  return Status::Ok();
}

}  // namespace

Result<ModelConfig> ReadGgufConfig(const GgufModel& model) {
  const Metadata& metadata = model.metadata;
  RETURN_IF_ERROR(CheckKind(metadata));
  ASSIGN_OR_RETURN(const auto architecture, metadata.Text("general.architecture"));
  if (!architecture)
    return InvalidArgument(metadata.where() + ": general.architecture: is missing");
  json object = FieldsOf(metadata, *architecture);
  const Result<const model::Family*> family =
      model::FamilyOfGguf(*architecture, HasExperts(object));
  if (!family.ok()) return family.status().WithPrefix(metadata.where());
  const model::GgufForm& form = (*family)->gguf;
  const StoredTensor* table = model.tensors.Find(
      StoredName(form.tensors, form.tensors.model_rows.front().checkpoint, ".weight"));
  if (!object.contains("vocab_size") && table != nullptr && table->shape.rank() == 2)
    object["vocab_size"] = table->shape[0];
  const std::string where = fmt::format("{}: {}", metadata.where(), *architecture);
  RETURN_IF_ERROR(RefuseUnread(object, form, where));
  ModelConfig config = (*family)->config;
  artifact::JsonFields fields(where, object);
  for (const model::Field& field : form.fields) RETURN_IF_ERROR(field.read(fields, config));
  RETURN_IF_ERROR(fields.status());
  ReadTensorFacts(model.tensors, form, config);
  RETURN_IF_ERROR(ReadTokenIds(metadata, config));
  RETURN_IF_ERROR(ReadLongRope(model, where, config));
  if (const Status valid = model::Validate(config); !valid.ok()) return valid.WithPrefix(where);
  RETURN_IF_ERROR(ReadRopeFactors(model, config));
  return config;
}

}  // namespace inflight::builder

// SPDX-License-Identifier: Apache-2.0
#include "builder/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "artifact/checkpoint.h"
#include "artifact/json_file.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/weight_formats.h"
#include "model/config_json.h"
#include "model/families/families.h"

namespace inflight::builder {
namespace {

using artifact::JsonFields;
using model::ModelConfig;
using nlohmann::json;

constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kModelOptConfig[] = "hf_quant_config.json";

// A family, and the name that it was found by.
struct Named {
  const model::Family* family = nullptr;
  std::string name;
};

Result<Named> FamilyOf(JsonFields& fields) {
  const json* list = fields.Find("architectures");
  if (list != nullptr && list->is_array() && list->size() == 1 && (*list)[0].is_string()) {
    Named named = {.family = nullptr, .name = (*list)[0].get<std::string>()};
    ASSIGN_OR_RETURN(named.family, model::FamilyOfHuggingFace(named.name));
    return named;
  }
  if (list != nullptr) {
    fields.Fail("architectures",
                "got " + artifact::Abbreviate(*list) + ", a list of one name is needed");
    return fields.status();
  }
  Named named = {.family = nullptr, .name = fields.String("model_type")};
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(named.family, model::FamilyOfModelType(named.name));
  return named;
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
    return Unimplemented(fmt::format("{}: {}: got {}, float32, bfloat16 and float16 are supported",
                                     fields.where(), field,
                                     artifact::Abbreviate(*fields.Find(field))));
  return Status::Ok();
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

// compression_config is the older name of compressed-tensors.
Status ParseQuantization(const json& object, const std::string& where, HfConfig& hf) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null() || hf.quantization != nullptr) continue;
    ASSIGN_OR_RETURN(hf.quantization,
                     quantized::ReadMethod(*found, fmt::format("{}: {}", where, name)));
    hf.quant_method = found->at("quant_method").get<std::string>();
  }
  return Status::Ok();
}

Status CheckQuantization(const HfConfig& hf, const std::string& where) {
  if (hf.quantization == nullptr) return Status::Ok();
  ASSIGN_OR_RETURN(const model::Family* const family, model::FamilyOf(hf.config.architecture));
  return CheckQuantMethod(*family, hf.quant_method)
      .WithPrefix(fmt::format("{}: quantization_config: {}", where, hf.quantization->Describe()));
}

}  // namespace

Result<HfConfig> ParseHfConfig(const json& object, const std::string& where) {
  JsonFields fields(where, object);
  const Result<Named> named = FamilyOf(fields);
  RETURN_IF_ERROR(fields.status());
  if (!named.ok()) return named.status().WithPrefix(where);
  const model::Family& family = *named->family;
  HfConfig hf{.config = family.config, .dtype = std::nullopt};
  RETURN_IF_ERROR(ParseDType(fields, hf.dtype));
  const std::string_view part = model::ConfigFieldOf(family, named->name);
  const json* const described = part.empty() ? &object : fields.FindObject(part);
  RETURN_IF_ERROR(fields.status());
  if (described == nullptr) return InvalidArgument(fmt::format("{}: {}: is missing", where, part));
  JsonFields text(part.empty() ? where : fmt::format("{}: {}", where, part), *described);
  for (const model::Field& field : family.hugging_face) {
    RETURN_IF_ERROR(field.read(text, hf.config));
    // A model with further parts may say it of all of them.
    if (field.name == "tie_word_embeddings" && fields.Has(field.name))
      RETURN_IF_ERROR(field.read(fields, hf.config));
  }
  RETURN_IF_ERROR(ParseQuantization(object, where, hf));
  if (!part.empty()) {
    if (!hf.dtype) RETURN_IF_ERROR(ParseDType(text, hf.dtype));
    RETURN_IF_ERROR(ParseTokenIds(*described, text.where(), hf.config));
  }
  RETURN_IF_ERROR(ParseTokenIds(object, where, hf.config));
  RETURN_IF_ERROR(CheckQuantization(hf, where));
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
  if (hf.quantization == nullptr && FileExists(dir / kModelOptConfig)) {
    const std::string file = (dir / kModelOptConfig).string();
    ASSIGN_OR_RETURN(const json quantization, artifact::ReadJsonFile(dir / kModelOptConfig));
    ASSIGN_OR_RETURN(hf.quantization, quantized::ReadModelOptFile(quantization, file));
    hf.quant_method = quantized::kModelOpt;
    RETURN_IF_ERROR(CheckQuantization(hf, file));
  }
  return hf;
}

}  // namespace inflight::builder

// SPDX-License-Identifier: Apache-2.0
#include "builder/weight_formats.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "model/families/families.h"
#include "model/supported.h"
#include "quantized/method.h"

namespace inflight::builder {
namespace {

using model::Family;
using model::ModelConfig;
using model::QuantAlgo;
using model::TensorRow;

constexpr DType kFloatDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr QuantAlgo kAlgosToAskFor[] = {QuantAlgo::kW8A16, QuantAlgo::kW4A16, QuantAlgo::kW8A16Gptq,
                                        QuantAlgo::kW4A16Gptq, QuantAlgo::kFp8PerChannelPerToken};

// A model of the family in sizes that every format takes: widths are a whole group of each.
ModelConfig SmallModelOf(const Family& family) {
  constexpr int kWidth = model::kDefaultGroupSize;
  ModelConfig config = family.config;
  config.vocab_size = config.hidden_size = config.intermediate_size = kWidth;
  config.max_position_embeddings = kWidth;
  config.num_layers = 1;
  config.num_heads = config.num_kv_heads = 2;
  config.head_dim = kWidth / 2;
  if (std::ranges::any_of(family.tensors.layer_rows, model::IsOfExperts)) {
    config.num_experts = 2;
    config.experts_per_token = 1;
    config.expert_intermediate_size = kWidth;
  }
  return config;
}

// Whether one tensor holds the matrices of all experts of a layer, each [out, in].
bool HasStackedExperts(const Family& family) {
  return std::ranges::any_of(family.tensors.layer_rows, [](const TensorRow& row) {
    return row.holds_experts && !row.is_transposed;
  });
}

// A family whose files call themselves another's has no name of its own to be found by.
Status CheckGguf(const Family& family) {
  const std::string_view own = family.gguf.architecture;
  return model::FamilyOfGguf(own.empty() ? family.model_type : own, family.gguf.has_experts)
      .status();
}

}  // namespace

std::string_view FormatFieldName(FormatField field) {
  switch (field) {
    case FormatField::kDType:
      return "dtype";
    case FormatField::kQuantAlgo:
      return "quant_algo";
    case FormatField::kQuantMethod:
      return "quant_method";
    case FormatField::kGguf:
      return "gguf";
  }
  return "";
}

std::vector<WeightFormat> WeightFormats() {
  std::vector<WeightFormat> formats;
  for (const DType dtype : kFloatDTypes)
    formats.push_back({.field = FormatField::kDType, .name = DTypeName(dtype), .dtype = dtype});
  for (const QuantAlgo algo : kAlgosToAskFor)
    formats.push_back(
        {.field = FormatField::kQuantAlgo, .name = QuantAlgoName(algo), .algo = algo});
  for (const quantized::MethodFacts& method : quantized::Methods())
    formats.push_back({.field = FormatField::kQuantMethod, .name = method.name});
  formats.push_back({.field = FormatField::kGguf, .name = "GGUF"});
  return formats;
}

Status CheckFormat(const Family& family, const WeightFormat& format, DeviceKind device) {
  if (format.field == FormatField::kQuantMethod)
    RETURN_IF_ERROR(CheckQuantMethod(family, format.name));
  if (format.field == FormatField::kGguf) RETURN_IF_ERROR(CheckGguf(family));
  ModelConfig config = SmallModelOf(family);
  config.dtype = format.dtype;
  config.quant_algo = format.algo;
  if (model::HasGroups(format.algo)) config.group_size = model::kDefaultGroupSize;
  RETURN_IF_ERROR(model::Validate(config));
  return model::CheckSupported(config, model::FactsOf(device));
}

// Files of matrices that are stored transposed are quantised along the other side.
Status CheckQuantMethod(const Family& family, std::string_view method) {
  if (family.tensors.has_conv1d)
    return Unimplemented(
        fmt::format("quantised weights of {} are not supported", family.architecture));
  const std::vector<quantized::MethodFacts> methods = quantized::Methods();
  const auto facts = std::ranges::find(methods, method, &quantized::MethodFacts::name);
  if (facts == methods.end() || !facts->is_of_stacked_experts || HasStackedExperts(family))
    return Status::Ok();
  return Unimplemented(fmt::format(
      "{} is of experts that one tensor holds, which {} does not have; other methods are supported",
      method, family.architecture));
}

}  // namespace inflight::builder

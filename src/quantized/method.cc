// SPDX-License-Identifier: Apache-2.0
#include "quantized/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "artifact/printable.h"
#include "base/status_macros.h"
#include "tensor/element.h"

namespace inflight::quantized {
namespace {

struct NamedMethod {
  MethodFacts facts;
  Result<std::shared_ptr<const Method>> (*read)(artifact::JsonFields& fields);

  std::string_view name() const { return facts.name; }
};
constexpr NamedMethod kMethods[] = {{{.name = "awq"}, ReadAwq},
                                    {{.name = "gptq"}, ReadGptq},
                                    {{.name = "compressed-tensors"}, ReadCompressedTensors},
                                    {{.name = "fp8"}, ReadFp8},
                                    {{.name = kModelOpt}, ReadModelOpt},
                                    {{.name = "mxfp4", .is_of_stacked_experts = true}, ReadMxfp4}};

std::string MethodNames() {
  std::string names;
  for (const NamedMethod& method : kMethods)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", method.name());
  return names;
}

// The scale of a module's activations, under the names that methods have for it; none where it is
// no single float.
std::optional<float> ActivationScaleOf(const Module& module) {
  for (const char* const name : {"input_scale", "activation_scale", "activation_scaling_factor"}) {
    const artifact::StoredTensor* const scale = module.Find(name);
    if (scale == nullptr || scale->shape.num_elements() != 1) continue;
    if (std::ranges::find(kScaleDTypes, scale->dtype) == kScaleDTypes.end()) continue;
    return LoadFloat(scale->data.data(), scale->dtype, 0);
  }
  return std::nullopt;
}

}  // namespace

std::vector<MethodFacts> Methods() {
  std::vector<MethodFacts> all;
  for (const NamedMethod& method : kMethods) all.push_back(method.facts);
  return all;
}

Status NotSupported(const artifact::JsonFields& fields, std::string_view field,
                    std::string_view why) {
  return Unimplemented(fmt::format("{}: {}: got {}, {}", fields.where(), field,
                                   artifact::Abbreviate(*fields.Find(field)), why));
}

std::optional<BlockSize> ReadBlockSize(artifact::JsonFields& fields, std::string_view field) {
  const nlohmann::json* const size = fields.Find(field);
  if (size == nullptr) return std::nullopt;
  const auto is_extent = [](const nlohmann::json& n) {
    return n.is_number_integer() && n >= 1 && n <= INT32_MAX;
  };
  if (size->is_array() && size->size() == 2 && std::ranges::all_of(*size, is_extent))
    return BlockSize{.rows = (*size)[0].get<int64_t>(), .columns = (*size)[1].get<int64_t>()};
  fields.Fail(field,
              fmt::format("got {}, rows and columns are needed", artifact::Abbreviate(*size)));
  return std::nullopt;
}

Result<std::optional<Weight>> Method::WeightOf(const Module& module) const {
  if (!IsPacked(module)) return std::optional<Weight>();
  if (const std::string* const entry = ignored.Find(module.name()); entry != nullptr)
    return InvalidArgument(fmt::format("{}: is packed, and {} has {}, which leaves it alone",
                                       artifact::Printable(module.name()), ignored.field(),
                                       *entry));
  ASSIGN_OR_RETURN(Weight weight, Unpack(module));
  return std::optional(std::move(weight));
}

Result<std::shared_ptr<const Method>> ReadMethod(const nlohmann::json& quantization,
                                                 const std::string& where) {
  if (!quantization.is_object())
    return InvalidArgument(
        fmt::format("{}: got {}, an object is needed", where, artifact::Abbreviate(quantization)));
  artifact::JsonFields fields(where, quantization);
  const std::string name = fields.String("quant_method");
  RETURN_IF_ERROR(fields.status());
  const auto* const method = std::ranges::find(kMethods, name, &NamedMethod::name);
  if (method == std::end(kMethods))
    return NotSupported(fields, "quant_method", MethodNames() + " are supported");
  return method->read(fields);
}

Result<Unpacked> UnpackAll(const Method& method, artifact::TensorSet& tensors) {
  std::set<std::string> modules;
  for (const artifact::StoredTensor& tensor : tensors.tensors())
    if (const size_t end = tensor.name.rfind(method.Separator()); end != std::string::npos)
      modules.insert(tensor.name.substr(0, end));
  Unpacked unpacked;
  std::set<std::string, std::less<>> gone;
  std::vector<artifact::StoredTensor> added;
  for (const std::string& name : modules) {
    const Module module(tensors, name, method.Separator());
    ASSIGN_OR_RETURN(std::optional<Weight> weight, method.WeightOf(module));
    if (!weight) continue;
    for (const std::string_view part : method.Parts()) gone.insert(module.NameOf(part));
    if (const std::optional<float> scale = ActivationScaleOf(module))
      unpacked.activation_scales.emplace(weight->widened.name, *scale);
    if (weight->native) unpacked.native.emplace(weight->widened.name, *std::move(weight->native));
    if (tensors.Find(weight->widened.name) != nullptr && !gone.contains(weight->widened.name))
      return InvalidArgument(
          fmt::format("{}: stands beside the tensors that it is packed in", weight->widened.name));
    added.push_back(std::move(weight->widened));
  }
  unpacked.num_weights = static_cast<int>(added.size());
  tensors.Replace(gone, std::move(added));
  return unpacked;
}

}  // namespace inflight::quantized

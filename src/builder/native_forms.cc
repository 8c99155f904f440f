// SPDX-License-Identifier: Apache-2.0
#include "builder/native_forms.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace inflight::builder {
namespace {

using model::QuantAlgo;
using model::WeightSlot;
using quantized::NativeForm;

QuantAlgo AlgoOf(DType codes) {
  if (codes == DType::kI8) return QuantAlgo::kW8A16;
  return codes == DType::kI4 ? QuantAlgo::kW4A16 : QuantAlgo::kFp8PerChannelPerToken;
}

bool IsWanted(QuantAlgo algo, const SourceOptions& options, DType dtype) {
  if (options.quant_algo.value_or(algo) != algo) return false;
  if (algo != QuantAlgo::kFp8PerChannelPerToken) return true;
  const bool is_narrow = dtype != DType::kF32 || !options.dtype;  // else it becomes bfloat16
  return options.target != DeviceKind::kCpu && is_narrow;
}

// Scales of integers are kept in the model's dtype, those of FP8 in float32.
bool IsLossless(const NativeForm& form, DType dtype) {
  return form.codes.dtype == DType::kF8E4M3 || dtype == DType::kF32 || form.scales.dtype == dtype;
}

// The form of each part of the recipe; none where one has none.
std::vector<const NativeForm*> FormsOf(const WeightRecipe& recipe, QuantAlgo algo,
                                       const WeightSource& source) {
  std::vector<const NativeForm*> forms;
  for (const WeightPart& part : recipe.parts) {
    const auto found = source.packed.native.find(part.tensor->name);
    if (found == source.packed.native.end() || AlgoOf(found->second.codes.dtype) != algo ||
        !IsLossless(found->second, source.config.dtype))
      return {};
    forms.push_back(&found->second);
  }
  return forms;
}

}  // namespace

bool KeepNativeForms(const SourceOptions& options, WeightSource& source) {
  if (source.packed.native.empty()) return false;
  const QuantAlgo algo = AlgoOf(source.packed.native.begin()->second.codes.dtype);
  if (!IsWanted(algo, options, source.config.dtype)) return false;
  model::ModelConfig config = source.config;
  config.quant_algo = algo;
  model::DecoderWeights unused;
  const std::vector<WeightSlot> slots = model::WeightSlots(config, unused);
  std::unordered_map<std::string, WeightRecipe> kept;
  for (const WeightSlot& slot : slots) {
    if (!slot.is_quantized) continue;
    WeightRecipe matrix = source.recipes.at(slot.name);
    const std::vector<const NativeForm*> forms = FormsOf(matrix, algo, source);
    if (forms.empty()) return false;
    for (size_t i = 0; i < forms.size(); ++i) matrix.parts[i].tensor = &forms[i]->codes;
    kept.emplace(slot.name, std::move(matrix));
  }
  for (const WeightSlot& slot : slots) {
    if (slot.kind != WeightSlot::Kind::kScales) continue;
    WeightRecipe scales{.shape = slot.shape, .parts = {}};
    const std::string matrix = model::MatrixOfScales(slot);
    const std::vector<const NativeForm*> forms = FormsOf(source.recipes.at(matrix), algo, source);
    for (size_t i = 0; i < forms.size(); ++i) {
      const WeightPart& part = kept.at(matrix).parts[i];
      scales.parts.push_back({.tensor = &forms[i]->scales,
                              .row = part.row,
                              .num_rows = part.num_rows,
                              .stored_row = part.stored_row});
    }
    kept.emplace(slot.name, std::move(scales));
  }
  for (auto& [name, recipe] : kept) source.recipes[name] = std::move(recipe);
  source.config.quant_algo = algo;
  return true;
}

}  // namespace inflight::builder

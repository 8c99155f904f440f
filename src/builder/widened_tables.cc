// SPDX-License-Identifier: Apache-2.0
#include "builder/widened_tables.h"

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/element.h"

namespace inflight::builder {
namespace {

using model::LinearForm;

// What a matrix of codes stands for (ops/weight.h).
class NumbersReader final : public artifact::TensorReader {
 public:
  NumbersReader(const LinearForm& form, WeightRecipe codes, WeightRecipe scales,
                std::optional<WeightRecipe> offsets)
      : form_(form),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        offsets_(std::move(offsets)),
        width_(codes_.shape[1]),
        num_groups_(form.NumGroups(width_)) {}

  void Read(const artifact::TensorBlock& block, void* out) const override {
    std::vector<std::byte> codes(BytesOf(form_.dtype, width_));
    std::vector<float> scales(static_cast<size_t>(num_groups_));
    std::vector<float> offsets(scales.size());
    auto* to = static_cast<float*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row) {
      CopyRows(codes_, row, 1, form_.dtype, codes.data());
      FillScales(row, scales);
      if (offsets_) CopyRows(*offsets_, row, 1, DType::kF32, offsets.data());
      for (int64_t k = block.column; k < block.column + block.num_columns; ++k) {
        const auto group = static_cast<size_t>(k * num_groups_ / width_);
        *to++ = std::fma(CodeAt(codes.data(), k), scales[group], offsets[group]);
      }
    }
  }

 private:
  void FillScales(int64_t row, std::vector<float>& scales) const {
    if (form_.dtype != DType::kF4E2M1) return CopyRows(scales_, row, 1, DType::kF32, scales.data());
    std::vector<std::byte> exponents(scales.size());
    CopyRows(scales_, row, 1, DType::kU8, exponents.data());
    for (size_t g = 0; g < scales.size(); ++g) scales[g] = HalfOfE8M0(exponents[g]);
  }
  float CodeAt(const std::byte* codes, int64_t k) const {
    if (form_.dtype == DType::kI8) return LoadAs<int8_t>(codes, k);
    const int four = LoadInt4(codes, k);
    if (form_.dtype == DType::kI4) return static_cast<float>(four);
    return static_cast<float>(kTwiceE2M1[static_cast<size_t>(four & 0xf)]);
  }

  LinearForm form_;
  WeightRecipe codes_, scales_;
  std::optional<WeightRecipe> offsets_;
  int64_t width_;
  int64_t num_groups_;
};

}  // namespace

void WidenTables(WeightSource& source) {
  model::ModelConfig& config = source.config;
  model::DecoderWeights unused;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
    const std::string stem = slot.name.substr(0, slot.name.rfind('.'));
    if (!slot.is_quantized || (stem != model::kEmbeddingStem && stem != model::kHeadStem)) continue;
    const auto take = [&](const std::string& end) -> std::optional<WeightRecipe> {
      const auto found = source.recipes.find(stem + end);
      if (found == source.recipes.end()) return std::nullopt;
      std::optional<WeightRecipe> recipe = std::move(found->second);
      source.recipes.erase(found);
      return recipe;
    };
    std::optional<WeightRecipe> scales =
        take(slot.form.has_groups() ? ".weights_scaling_factor" : ".per_channel_scale");
    if (!scales) continue;  // floats, which nothing has quantised yet
    std::optional<WeightRecipe> offsets = take(".zero");
    WeightRecipe codes = *take(".weight");
    const Shape shape = codes.shape;
    const artifact::StoredTensor& numbers =
        source.read_tensors.emplace_back(artifact::StoredTensor{
            .name = slot.name,
            .dtype = DType::kF32,
            .shape = shape,
            .data = {},
            .reader = std::make_shared<NumbersReader>(slot.form, std::move(codes),
                                                      *std::move(scales), std::move(offsets))});
    source.recipes[slot.name] = {
        .shape = shape,
        .parts = {{.tensor = &numbers, .num_rows = shape[0], .num_columns = shape[1]}}};
  }
  config.slot_forms.erase(std::string(model::kEmbeddingStem));
  config.slot_forms.erase(std::string(model::kHeadStem));
  if (config.slot_forms.empty()) config.quant_algo = model::QuantAlgo::kNone;
}

}  // namespace inflight::builder

// SPDX-License-Identifier: Apache-2.0
#include "builder/widened_forms.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/tensor_core_order.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using model::LinearForm;
using model::QuantAlgo;
using model::WeightSlot;

// What a matrix of codes stands for (ops/weight.h).
class NumbersReader final : public artifact::TensorReader {
 public:
  NumbersReader(const LinearForm& form, WeightRecipe codes, WeightRecipe scales,
                std::optional<WeightRecipe> offsets, const std::optional<WeightRecipe>& order)
      : form_(form),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        offsets_(std::move(offsets)),
        width_(codes_.shape[1]),
        num_groups_(form.NumGroups(width_)),
        order_(static_cast<size_t>(width_)) {
    std::iota(order_.begin(), order_.end(), 0);
    if (order) CopyRows(*order, 0, width_, DType::kI32, order_.data());
  }

  // Whether each column stands in the order once, which files may not have.
  bool HasEachColumn() const {
    std::vector<int32_t> sorted = order_;
    std::ranges::sort(sorted);
    for (size_t k = 0; k < sorted.size(); ++k)
      if (sorted[k] != static_cast<int32_t>(k)) return false;
    return true;
  }

  void Read(const artifact::TensorBlock& block, void* out) const override {
    std::vector<std::byte> codes(BytesOf(form_.dtype, width_));
    std::vector<float> scales(static_cast<size_t>(num_groups_));
    std::vector<float> offsets(scales.size());
    std::vector<float> numbers(order_.size());
    auto* to = static_cast<float*>(out);
    for (int64_t row = block.row; row < block.row + block.num_rows; ++row) {
      CopyRows(codes_, row, 1, form_.dtype, codes.data());
      FillScales(row, scales);
      if (offsets_) CopyRows(*offsets_, row, 1, DType::kF32, offsets.data());
      for (int64_t k = 0; k < width_; ++k) {
        const auto group = static_cast<size_t>(k * num_groups_ / width_);
        numbers[static_cast<size_t>(order_[static_cast<size_t>(k)])] =
            std::fma(CodeAt(codes.data(), k), scales[group], offsets[group]);
      }
      to = std::copy_n(numbers.begin() + block.column, block.num_columns, to);
    }
  }

 private:
  void FillScales(int64_t row, std::vector<float>& scales) const {
    if (form_.dtype != DType::kF4E2M1) return CopyRows(scales_, row, 1, DType::kF32, scales.data());
    std::vector<std::byte> exponents(scales.size());
    CopyRows(scales_, row, 1, DType::kU8, exponents.data());
    std::ranges::transform(exponents, scales.begin(), HalfOfE8M0);
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
  std::vector<int32_t> order_;  // [width_]
};

std::string StemOf(const WeightSlot& slot) { return slot.name.substr(0, slot.name.rfind('.')); }

// Of a matrix that is stored as integers, and that a GPU does not compute with as it is.
bool MustWiden(const WeightSource& source, const WeightSlot& slot) {
  if (!slot.is_quantized || slot.form.dtype == DType::kF8E4M3) return false;
  const bool is_linear = slot.layer >= 0 || slot.name.starts_with(model::kHeadStem);
  const bool is_taken = slot.num_experts > 0
                            ? ops::ExpertsTakeCodes({.codes = slot.form.dtype,
                                                     .in_features = slot.shape[1],
                                                     .group_size = slot.form.group_size})
                            : !slot.form.has_order;
  return !(is_linear && is_taken) && IsQuantized(source.recipes.at(slot.name));
}

// The configuration as one of forms for each linear.
void ListForms(const std::vector<WeightSlot>& slots, model::ModelConfig& config) {
  if (config.quant_algo == QuantAlgo::kMixedPrecision) return;
  for (const WeightSlot& slot : slots)
    if (slot.is_quantized) config.slot_forms[StemOf(slot)] = slot.form;
  config.quant_algo = QuantAlgo::kMixedPrecision;
  config.group_size = 0;
  config.has_zero_point = false;
}

}  // namespace

Status WidenForGpu(WeightSource& source) {
  model::DecoderWeights unused;
  const std::vector<WeightSlot> slots = model::WeightSlots(source.config, unused);
  const auto must_widen = [&](const WeightSlot& slot) { return MustWiden(source, slot); };
  if (std::ranges::none_of(slots, must_widen)) return Status::Ok();
  model::ModelConfig& config = source.config;
  ListForms(slots, config);
  for (const WeightSlot& slot : slots) {
    if (!must_widen(slot)) continue;
    const std::string stem = StemOf(slot);
    const auto take = [&](const char* end) -> std::optional<WeightRecipe> {
      const auto found = source.recipes.find(stem + end);
      if (found == source.recipes.end()) return std::nullopt;
      std::optional<WeightRecipe> recipe = std::move(found->second);
      source.recipes.erase(found);
      return recipe;
    };
    std::optional<WeightRecipe> scales =
        take(slot.form.has_groups() ? ".weights_scaling_factor" : ".per_channel_scale");
    std::optional<WeightRecipe> offsets = take(".zero");
    const std::optional<WeightRecipe> order = take(".column_order");
    WeightRecipe codes = *take(".weight");
    const Shape shape = codes.shape;
    const auto reader = std::make_shared<NumbersReader>(
        slot.form, std::move(codes), *std::move(scales), std::move(offsets), order);
    if (!reader->HasEachColumn())
      return InvalidArgument(source.where + ": " + stem +
                             ".column_order: has not each column once");
    const artifact::StoredTensor& numbers = source.read_tensors.emplace_back(artifact::StoredTensor{
        .name = slot.name, .dtype = DType::kF32, .shape = shape, .data = {}, .reader = reader});
    source.recipes[slot.name] = {
        .shape = shape,
        .parts = {{.tensor = &numbers, .num_rows = shape[0], .num_columns = shape[1]}}};
    config.slot_forms.erase(stem);
  }
  if (config.slot_forms.empty()) config.quant_algo = QuantAlgo::kNone;
  return Status::Ok();
}

}  // namespace inflight::builder

// SPDX-License-Identifier: Apache-2.0
#include "builder/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace inflight::builder {
namespace {

using model::WeightSlot;

constexpr float kRange = 128;

float ScaleOf(const float* row, int64_t size) {
  float largest = 0;
  for (int64_t k = 0; k < size; ++k) {
    if (!std::isfinite(row[k])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(row[k]));
  }
  return largest / kRange;
}

// Calls use(i, row i as the model's dtype rounds it, in float32).
template <typename Use>
void ForEachRow(const WeightRecipe& recipe, int64_t row, int64_t num_rows, DType dtype,
                const Use& use) {
  const int64_t width = recipe.shape[1];
  std::vector<std::byte> rounded(static_cast<size_t>(width) * SizeOf(dtype));
  std::vector<float> values(static_cast<size_t>(width));
  for (int64_t i = 0; i < num_rows; ++i) {
    CopyRows(recipe, row + i, 1, dtype, rounded.data());
    ops::PackWeight({rounded.data(), dtype, {1, width}}, DType::kF32, ops::WeightLayout::kRowMajor,
                    values.data());
    use(i, values.data());
  }
}

}  // namespace

float QuantizeRow(const float* row, int64_t size, int8_t* out) {
  const float scale = ScaleOf(row, size);
  if (!(scale > 0)) {
    std::fill_n(out, size, int8_t{0});
    return scale;
  }
  for (int64_t k = 0; k < size; ++k)
    out[k] = static_cast<int8_t>(std::clamp(std::round(row[k] / scale), -kRange, kRange - 1));
  return scale;
}

DType CheckpointDType(const model::ModelConfig& config, const WeightSlot& slot) {
  return slot.is_quantized ? DType::kI8 : config.dtype;
}

void CopySlotRows(const WeightSource& source, const WeightSlot& slot, int64_t row, int64_t num_rows,
                  void* out) {
  const DType dtype = source.config.dtype;
  const auto stored = source.recipes.find(slot.name);
  if (slot.kind == WeightSlot::Kind::kScales && stored == source.recipes.end()) {
    const WeightRecipe& matrix = source.recipes.at(model::MatrixOfScales(slot));
    std::vector<float> scales(static_cast<size_t>(num_rows));
    ForEachRow(matrix, row, num_rows, dtype, [&](int64_t i, const float* values) {
      scales[static_cast<size_t>(i)] = ScaleOf(values, matrix.shape[1]);
    });
    ops::PackWeight({scales.data(), DType::kF32, {1, num_rows}}, dtype,
                    ops::WeightLayout::kRowMajor, out);
    return;
  }
  const WeightRecipe& recipe = stored->second;
  if (!slot.is_quantized) return CopyRows(recipe, row, num_rows, dtype, out);
  if (IsInt8(recipe)) return CopyRows(recipe, row, num_rows, DType::kI8, out);
  auto* const values = static_cast<int8_t*>(out);
  ForEachRow(recipe, row, num_rows, dtype, [&](int64_t i, const float* from) {
    QuantizeRow(from, recipe.shape[1], values + i * recipe.shape[1]);
  });
}

void CopySlotBlock(const WeightSource& source, const WeightSlot& slot, const WeightBlock& block,
                   void* out) {
  const int64_t width = slot.shape.rank() == 1 ? 1 : slot.shape[1];
  if (block.num_columns == width) return CopySlotRows(source, slot, block.row, block.num_rows, out);
  const DType dtype = CheckpointDType(source.config, slot);
  const WeightRecipe& recipe = source.recipes.at(slot.name);
  if (!slot.is_quantized || IsInt8(recipe)) return CopyBlock(recipe, block, dtype, out);
  const std::unique_ptr<int8_t[]> row = std::make_unique<int8_t[]>(static_cast<size_t>(width));
  auto* to = static_cast<int8_t*>(out);
  for (int64_t i = 0; i < block.num_rows; ++i, to += block.num_columns) {
    CopySlotRows(source, slot, block.row + i, 1, row.get());
    std::copy_n(row.get() + block.column, block.num_columns, to);
  }
}

}  // namespace inflight::builder

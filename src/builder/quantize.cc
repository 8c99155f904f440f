// SPDX-License-Identifier: Apache-2.0
#include "builder/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace inflight::builder {
namespace {

using model::WeightSlot;

constexpr float kInt8Range = 128;
constexpr float kFp8Floor = 1.0F / 512;

// Not scaled yet; NaN where a value is not finite.
float LargestOf(const float* row, int64_t size) {
  float largest = 0;
  for (int64_t k = 0; k < size; ++k) {
    if (!std::isfinite(row[k])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(row[k]));
  }
  return largest;
}

float ScaleOf(float largest, DType dtype) {
  if (dtype == DType::kI8 || std::isnan(largest)) return largest / kInt8Range;
  return std::max(largest, kFp8Floor) / Float8E4M3::kMax;
}

void Quantize(const float* row, int64_t size, float scale, int8_t* out) {
  for (int64_t k = 0; k < size; ++k)
    out[k] =
        static_cast<int8_t>(std::clamp(std::round(row[k] / scale), -kInt8Range, kInt8Range - 1));
}
void Quantize(const float* row, int64_t size, float scale, Float8E4M3* out) {
  for (int64_t k = 0; k < size; ++k) out[k] = Float8E4M3::FromFloat(row[k] / scale);
}

template <typename T>
float QuantizeRowAs(const float* row, int64_t size, DType dtype, T* out) {
  const float scale = ScaleOf(LargestOf(row, size), dtype);
  if (scale > 0)
    Quantize(row, size, scale, out);
  else
    std::fill_n(out, size, T{});
  return scale;
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
  return QuantizeRowAs(row, size, DType::kI8, out);
}

float QuantizeRow(const float* row, int64_t size, Float8E4M3* out) {
  return QuantizeRowAs(row, size, DType::kF8E4M3, out);
}

DType CheckpointDType(const model::ModelConfig& config, const WeightSlot& slot) {
  if (slot.is_quantized) return LinearDType(config);
  const bool has_fp8_scales = slot.kind == WeightSlot::Kind::kScales &&
                              config.quant_algo == model::QuantAlgo::kFp8PerChannelPerToken;
  return has_fp8_scales ? DType::kF32 : config.dtype;
}

void CopySlotRows(const WeightSource& source, const WeightSlot& slot, int64_t row, int64_t num_rows,
                  void* out) {
  const DType linear_dtype = LinearDType(source.config);
  const DType dtype = CheckpointDType(source.config, slot);
  const auto stored = source.recipes.find(slot.name);
  if (slot.kind == WeightSlot::Kind::kScales && stored == source.recipes.end()) {
    const WeightRecipe& matrix = source.recipes.at(model::MatrixOfScales(slot));
    const int64_t width = matrix.shape[1];
    std::vector<float> scales(static_cast<size_t>(num_rows));
    ForEachRow(matrix, row, num_rows, source.config.dtype, [&](int64_t i, const float* values) {
      scales[static_cast<size_t>(i)] = ScaleOf(LargestOf(values, width), linear_dtype);
    });
    ops::PackWeight({scales.data(), DType::kF32, {1, num_rows}}, dtype,
                    ops::WeightLayout::kRowMajor, out);
    return;
  }
  const WeightRecipe& recipe = stored->second;
  if (!slot.is_quantized || IsQuantized(recipe)) return CopyRows(recipe, row, num_rows, dtype, out);
  const int64_t width = recipe.shape[1];
  ForEachRow(recipe, row, num_rows, source.config.dtype, [&](int64_t i, const float* from) {
    if (dtype == DType::kI8)
      QuantizeRow(from, width, static_cast<int8_t*>(out) + i * width);
    else
      QuantizeRow(from, width, static_cast<Float8E4M3*>(out) + i * width);
  });
}

void CopySlotBlock(const WeightSource& source, const WeightSlot& slot, const WeightBlock& block,
                   void* out) {
  const int64_t width = slot.shape.rank() == 1 ? 1 : slot.shape[1];
  if (block.num_columns == width) return CopySlotRows(source, slot, block.row, block.num_rows, out);
  const DType dtype = CheckpointDType(source.config, slot);
  const WeightRecipe& recipe = source.recipes.at(slot.name);
  if (!slot.is_quantized || IsQuantized(recipe)) return CopyBlock(recipe, block, dtype, out);
  std::vector<std::byte> row(static_cast<size_t>(width));  // a byte an element
  auto* to = static_cast<std::byte*>(out);
  for (int64_t i = 0; i < block.num_rows; ++i, to += block.num_columns) {
    CopySlotRows(source, slot, block.row + i, 1, row.data());
    std::copy_n(row.data() + block.column, block.num_columns, to);
  }
}

}  // namespace inflight::builder

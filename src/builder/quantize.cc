// SPDX-License-Identifier: Apache-2.0
#include "builder/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tensor/element.h"

namespace inflight::builder {
namespace {

using model::WeightSlot;

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

// One more than the largest code of integers.
float RangeOf(DType integer) { return integer == DType::kI4 ? 8 : 128; }

float ScaleOf(float largest, DType dtype) {
  if (ops::IsInteger(dtype) || std::isnan(largest)) return largest / RangeOf(dtype);
  return std::max(largest, kFp8Floor) / Float8E4M3::kMax;
}

int Code(float value, float scale, float range) {
  return static_cast<int>(std::clamp(std::round(value / scale), -range, range - 1));
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

// Scales of a matrix that is quantised here; offsets are 0.
void MakeScales(const WeightSource& source, const WeightSlot& slot, int64_t row, int64_t num_rows,
                void* out) {
  const WeightRecipe& matrix = source.recipes.at(model::MatrixOfScales(slot));
  const int64_t width = matrix.shape[1];
  const int64_t num_groups = slot.form.NumGroups(width);
  const int64_t group_size = width / num_groups;
  std::vector<float> scales(static_cast<size_t>(num_rows * num_groups));
  if (slot.kind == WeightSlot::Kind::kScales)
    ForEachRow(matrix, row, num_rows, source.config.dtype, [&](int64_t i, const float* values) {
      for (int64_t g = 0; g < num_groups; ++g)
        scales[static_cast<size_t>(i * num_groups + g)] =
            ScaleOf(LargestOf(values + g * group_size, group_size), slot.form.dtype);
    });
  ops::PackWeight({scales.data(), DType::kF32, {1, num_rows * num_groups}},
                  CheckpointDType(source.config, slot), ops::WeightLayout::kRowMajor, out);
}

}  // namespace

float QuantizeRow(const float* row, int64_t size, DType dtype, void* out) {
  const float scale = ScaleOf(LargestOf(row, size), dtype);
  auto* bytes = static_cast<uint8_t*>(out);
  const float range = RangeOf(dtype);
  if (!(scale > 0)) {
    std::fill_n(bytes, BytesOf(dtype, size), uint8_t{0});
  } else if (dtype == DType::kI4) {
    for (int64_t k = 0; k < size; k += 2)
      bytes[k / 2] = PackInt4(Code(row[k], scale, range), Code(row[k + 1], scale, range));
  } else if (dtype == DType::kI8) {
    for (int64_t k = 0; k < size; ++k) bytes[k] = static_cast<uint8_t>(Code(row[k], scale, range));
  } else {
    for (int64_t k = 0; k < size; ++k) bytes[k] = Float8E4M3::FromFloat(row[k] / scale).bits;
  }
  return scale;
}

DType CheckpointDType(const model::ModelConfig& config, const WeightSlot& slot) {
  if (slot.is_quantized) return slot.form.dtype;
  if (HasExponents(slot) || HasBlocks(slot)) return DType::kU8;
  if (slot.kind == WeightSlot::Kind::kOrder) return DType::kI32;
  const bool has_wide_scales =
      IsOfMatrix(slot) && (slot.form.has_groups() || slot.form.dtype == DType::kF8E4M3);
  return has_wide_scales || slot.is_one_centered || slot.is_router ? DType::kF32 : config.dtype;
}

artifact::TensorSpec FileSpec(std::string name, DType dtype, const Shape& shape) {
  if (!HasHalfBytes(dtype)) return {std::move(name), dtype, shape};
  const Shape bytes =
      shape.rank() == 3 ? Shape{shape[0], shape[1], shape[2] / 2} : Shape{shape[0], shape[1] / 2};
  return {std::move(name), DType::kI8, bytes};
}

artifact::StoredTensor OfHalfBytes(const artifact::StoredTensor& bytes, DType dtype) {
  const Shape& s = bytes.shape;
  const Shape elements = s.rank() == 3 ? Shape{s[0], s[1], 2 * s[2]} : Shape{s[0], 2 * s[1]};
  return {bytes.name, dtype, elements, bytes.data};
}

void CopySlotRows(const WeightSource& source, const WeightSlot& slot, int64_t row, int64_t num_rows,
                  void* out) {
  const DType dtype = CheckpointDType(source.config, slot);
  const auto stored = source.recipes.find(slot.name);
  if (stored == source.recipes.end()) return MakeScales(source, slot, row, num_rows, out);
  const WeightRecipe& recipe = stored->second;
  if (!slot.is_quantized || IsQuantized(recipe)) return CopyRows(recipe, row, num_rows, dtype, out);
  const int64_t width = recipe.shape[1];
  const int64_t group_size = width / slot.form.NumGroups(width);
  ForEachRow(recipe, row, num_rows, source.config.dtype, [&](int64_t i, const float* from) {
    auto* const to = static_cast<std::byte*>(out) + BytesOf(dtype, i * width);
    for (int64_t k = 0; k < width; k += group_size)
      QuantizeRow(from + k, group_size, dtype, to + BytesOf(dtype, k));
  });
}

void CopySlotBlock(const WeightSource& source, const WeightSlot& slot, const WeightBlock& block,
                   void* out) {
  const int64_t width = slot.shape.rank() == 1 ? 1 : slot.shape[1];
  if (block.num_columns == width) return CopySlotRows(source, slot, block.row, block.num_rows, out);
  const DType dtype = CheckpointDType(source.config, slot);
  const auto stored = source.recipes.find(slot.name);
  const bool is_made =
      stored == source.recipes.end() || (slot.is_quantized && !IsQuantized(stored->second));
  if (!is_made) return CopyBlock(stored->second, block, dtype, out);
  std::vector<std::byte> row(BytesOf(dtype, width));
  const size_t row_bytes = BytesOf(dtype, block.num_columns);
  auto* to = static_cast<std::byte*>(out);
  for (int64_t i = 0; i < block.num_rows; ++i, to += row_bytes) {
    CopySlotRows(source, slot, block.row + i, 1, row.data());
    std::copy_n(row.data() + BytesOf(dtype, block.column), row_bytes, to);
  }
}

}  // namespace inflight::builder

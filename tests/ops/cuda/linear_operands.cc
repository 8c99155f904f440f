// SPDX-License-Identifier: Apache-2.0
#include "linear_operands.h"

#include <cmath>

namespace inflight::ops {
namespace {

// The integers in [-range, range), in int8.
Tensor Codes(const Tensor& values, float range) {
  Tensor codes(DType::kI8, values.view().shape);
  for (int64_t i = 0; i < values.view().num_elements(); ++i)
    codes.view().as<int8_t>()[i] = static_cast<int8_t>(std::floor(range * values.Get(i)));
  return codes;
}

}  // namespace

Operand::Operand(Device& device, DType dtype, int64_t rows, int64_t width, uint64_t seed)
    : values(Tensor::Random(IsInteger(dtype) ? DType::kF32 : dtype, {rows, width}, seed)) {
  if (IsInteger(dtype)) values = Codes(values, dtype == DType::kI4 ? 8.0F : 128.0F);
  has_scales = IsInteger(dtype) || dtype == DType::kF8E4M3;
  scales = Tensor::Random(DType::kF32, {rows}, seed + 100);
  const float steps = dtype == DType::kI4 ? 4 : 64;
  for (int64_t i = 0; i < rows; ++i) scales.Set(i, (scales.Get(i) + 1.5F) / steps);
  if (dtype == DType::kI4)
    device_values = {device, PackedInt4(values)};
  else
    device_values = {device, values};
  device_scales = {device, scales};
}

Weight Operand::weight(int64_t first, int64_t rows) const {
  const TensorView& view = device_values.view();
  return {.data = view.as<std::byte>() + BytesOf(view.dtype, first * view.shape[1]),
          .dtype = view.dtype,
          .out_features = rows < 0 ? view.shape[0] : rows,
          .in_features = view.shape[1],
          .scales = has_scales ? device_scales.view().as<const float>() + first : nullptr};
}

std::string Name(const LinearDTypes& dtypes, int64_t m) {
  return std::string(DTypeName(dtypes.x)) + " x " + std::string(DTypeName(dtypes.w)) + " of a " +
         std::string(DTypeName(dtypes.model)) + " model, m " + std::to_string(m);
}

Tensor AsMultiplied(const Operand& w, const LinearDTypes& dtypes) {
  if (!IsInteger(dtypes.w)) {
    Tensor same(dtypes.w, w.values.view().shape);
    ForParts(same.view().num_elements(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) same.Set(i, w.values.Get(i));
    });
    return same;
  }
  Tensor rounded(dtypes.x, w.values.view().shape);
  const int64_t width = rounded.view().shape[1];
  ForParts(rounded.view().num_elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      rounded.Set(i, static_cast<float>(w.values.view().as<int8_t>()[i]) * w.scales.Get(i / width));
  });
  return rounded;
}

}  // namespace inflight::ops

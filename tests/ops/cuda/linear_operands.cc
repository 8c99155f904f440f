// SPDX-License-Identifier: Apache-2.0
#include "linear_operands.h"

#include <cmath>

#include "ops/tensor_core_order.h"

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
  const int64_t width = w.values.view().shape[1];
  Tensor rounded(dtypes.x, w.values.view().shape);
  ForParts(rounded.view().num_elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      rounded.Set(i, static_cast<float>(w.values.view().as<int8_t>()[i]) * w.scales.Get(i / width));
  });
  return rounded;
}

namespace {

Tensor CodesOf(DType dtype, const Tensor& random) {
  if (dtype != DType::kF8E4M3) return Codes(random, dtype == DType::kI4 ? 8.0F : 128.0F);
  Tensor codes(dtype, random.view().shape);
  for (int64_t i = 0; i < random.view().num_elements(); ++i) codes.Set(i, 448.0F * random.Get(i));
  return codes;
}

}  // namespace

IntegerOperand::IntegerOperand(Device& device, DType dtype, int64_t rows, int64_t width,
                               int64_t group_size, bool has_offsets, uint64_t seed)
    : dtype(dtype),
      group_size(group_size),
      num_groups(group_size == 0 ? 1 : width / group_size),
      has_offsets(has_offsets),
      codes(CodesOf(dtype, Tensor::Random(DType::kF32, {rows, width}, seed))),
      scales(Tensor::Random(DType::kF32, {rows, num_groups}, seed + 100)),
      offsets(Tensor::Random(DType::kF32, {rows, num_groups}, seed + 200)) {
  const float steps = dtype == DType::kI4 ? 4 : 64;
  for (int64_t i = 0; i < rows * num_groups; ++i) scales.Set(i, (scales.Get(i) + 1.5F) / steps);
  if (dtype == DType::kI4)
    device_codes = {device, PackedInt4(codes)};
  else
    device_codes = {device, codes};
  device_scales = {device, scales};
  device_offsets = {device, offsets};
  all = {.data = device_codes.view().data,
         .dtype = dtype,
         .out_features = rows,
         .in_features = width,
         .scales = device_scales.view().as<const float>(),
         .offsets = has_offsets ? device_offsets.view().as<const float>() : nullptr,
         .group_size = group_size};
  if (CanOrderForTensorCores(all)) Must(OrderForTensorCores(device, &all));
}

Weight IntegerOperand::weight(int64_t first, int64_t rows) const {
  return RowsOf(all, first, rows < 0 ? all.out_features : rows);
}

double IntegerOperand::Value(int64_t n, int64_t k) const {
  const int64_t width = codes.view().shape[1];
  const int64_t at = n * num_groups + (group_size == 0 ? 0 : k / group_size);
  const double product = double{CodeAt(n * width + k)} * scales.Get(at);
  return product + (has_offsets ? offsets.Get(at) : 0);
}

double IntegerOperand::Magnitude(int64_t n, int64_t k) const {
  const int64_t at = n * num_groups + (group_size == 0 ? 0 : k / group_size);
  const double offset = has_offsets ? offsets.Get(at) : 0;
  return std::abs(Value(n, k) - offset) + std::abs(offset);
}

}  // namespace inflight::ops

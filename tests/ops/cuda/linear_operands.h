// SPDX-License-Identifier: Apache-2.0
// Random operands of linears, in every dtype that CUDA linears take.
#pragma once

#include <string>

#include "device_support.h"
#include "ops/activation.h"
#include "ops/weight.h"

namespace inflight::ops {

// An operand of a linear on the host and on the device: its codes or values, and the scales that
// rows of quantised ones have.
struct Operand {
  Operand(Device& device, DType dtype, int64_t rows, int64_t width, uint64_t seed);

  double Scale(int64_t row) const { return has_scales ? scales.Get(row) : 1; }
  Activation activation() const {
    return {.values = device_values.view(),
            .scales = has_scales ? device_scales.view() : TensorView{}};
  }
  Weight weight(int64_t first = 0, int64_t rows = -1) const;

  Tensor values, scales;
  DeviceTensor device_values, device_scales;
  bool has_scales = false;
};

struct LinearDTypes {
  DType x, w, model;
};
inline constexpr LinearDTypes kLinearDTypes[] = {
    {DType::kBF16, DType::kBF16, DType::kBF16},     {DType::kF16, DType::kF16, DType::kF16},
    {DType::kF8E4M3, DType::kF8E4M3, DType::kBF16}, {DType::kF8E4M3, DType::kF8E4M3, DType::kF16},
    {DType::kBF16, DType::kI8, DType::kBF16},       {DType::kF16, DType::kI8, DType::kF16},
    {DType::kBF16, DType::kI4, DType::kBF16},       {DType::kF16, DType::kI4, DType::kF16}};

// These, and what models in float32 have.
inline constexpr LinearDTypes kModelDTypes[] = {
    kLinearDTypes[0], kLinearDTypes[1], kLinearDTypes[2],
    kLinearDTypes[3], kLinearDTypes[4], kLinearDTypes[5],
    kLinearDTypes[6], kLinearDTypes[7], {DType::kF32, DType::kF32, DType::kF32}};

std::string Name(const LinearDTypes& dtypes, int64_t m);

// The weight as products read it: of integers, which are row-major here and so widened, codes times
// scales rounded to the model's dtype.
Tensor AsMultiplied(const Operand& w, const LinearDTypes& dtypes);

// Random int8, int4 or FP8 codes [rows, width] with a scale, and an offset if wanted, for each
// group; `group_size` 0: a scale per row. On the device in the order of tensor cores where they
// have one (ops/tensor_core_order.h).
struct IntegerOperand {
  IntegerOperand(Device& device, DType dtype, int64_t rows, int64_t width, int64_t group_size,
                 bool has_offsets, uint64_t seed);

  // Rows [first, first + rows); `first` in whole panels of 64 where they are ordered.
  Weight weight(int64_t first = 0, int64_t rows = -1) const;
  bool is_ordered() const { return all.layout == WeightLayout::kTensorCore; }
  float CodeAt(int64_t i) const {
    return dtype == DType::kF8E4M3 ? codes.Get(i) : codes.view().as<int8_t>()[i];
  }
  // What element k of row n stands for, exactly, and the sum of the magnitudes of its two terms.
  double Value(int64_t n, int64_t k) const;
  double Magnitude(int64_t n, int64_t k) const;

  DType dtype;
  int64_t group_size, num_groups;
  bool has_offsets;
  Tensor codes, scales, offsets;  // int8 or FP8 [rows, width]; [rows, num_groups]
  DeviceTensor device_codes, device_scales, device_offsets;
  Weight all;
};

}  // namespace inflight::ops

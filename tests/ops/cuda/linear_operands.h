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

std::string Name(const LinearDTypes& dtypes, int64_t m);

// The weight as the product reads it: of integers the elements rounded to the model's dtype.
Tensor AsMultiplied(const Operand& w, const LinearDTypes& dtypes);

}  // namespace inflight::ops

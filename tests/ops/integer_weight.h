// SPDX-License-Identifier: Apache-2.0
// Weights of integers as tests of linears and experts need them: packed, with the elements, scales
// and offsets that they were made from. Of float4 the elements are the integers, twice its own, and
// the scales half of its powers of two.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "support.h"

namespace inflight::ops {

struct IntegerForm {
  DType dtype = DType::kI8;
  int64_t group_size = 0;  // 0: a scale for each row
  bool has_offsets = false;
};

struct IntegerWeight {
  // Elements, scales and offsets are row-major; without groups there is a scale for each row.
  IntegerWeight(const IntegerForm& form, int64_t rows, int64_t columns, std::vector<int8_t> values,
                std::vector<float> of_scales, std::vector<float> of_offsets, WeightLayout layout)
      : elements(std::move(values)),
        scales(std::move(of_scales)),
        offsets(std::move(of_offsets)),
        memory(DType::kU8, {static_cast<int64_t>(WeightBytes(form.dtype, layout, rows, columns))}) {
    Tensor stored(DType::kI8, {rows, columns});
    std::ranges::copy(elements, stored.view().as<int8_t>());
    if (form.dtype == DType::kF4E2M1)
      std::ranges::transform(elements, stored.view().as<int8_t>(), CodeOf);
    if (HasHalfBytes(form.dtype)) stored = PackedInt4(stored);
    TensorView rows_of_form = stored.view();
    rows_of_form.dtype = form.dtype;
    PackWeight(rows_of_form, form.dtype, layout, memory.view().data);
    weight = {.data = memory.view().data,
              .dtype = form.dtype,
              .layout = layout,
              .out_features = rows,
              .in_features = columns,
              .group_size = form.group_size};
    const int64_t num_scales = NumScales(layout, rows, columns, form.group_size);
    if (form.dtype == DType::kF4E2M1) {
      PackExponents(num_scales);
      return;
    }
    packed_scales = Tensor(DType::kF32, {num_scales});
    weight.scales = Packed(scales, packed_scales);
    if (!form.has_offsets) return;
    packed_offsets = Tensor(DType::kF32, {num_scales});
    weight.offsets = Packed(offsets, packed_offsets);
  }
  // With a scale for each row, in the CPU's layout.
  IntegerWeight(DType dtype, int64_t rows, int64_t columns, std::vector<int8_t> values,
                std::vector<float> of_scales)
      : IntegerWeight({.dtype = dtype}, rows, columns, std::move(values), std::move(of_scales), {},
                      CpuWeightLayout(dtype)) {}

  // The code of four bits, as int4 has them.
  static int8_t CodeOf(int8_t twice) {
    const int magnitude = twice < 0 ? -twice : twice;
    const int code = magnitude < 5 ? magnitude : magnitude == 6 ? 5 : magnitude == 8 ? 6 : 7;
    return static_cast<int8_t>(twice < 0 ? code - 8 : code);
  }

  // One more than the largest element.
  static int RangeOf(DType dtype) { return dtype == DType::kI4 ? 8 : 128; }

  // Elements over the whole range, its lower end included; scales of different sizes, offsets of
  // either sign.
  static IntegerWeight Some(const IntegerForm& form, int64_t rows, int64_t columns, uint64_t seed) {
    ops::Random random(seed);
    const int range = RangeOf(form.dtype);
    std::vector<int8_t> values(static_cast<size_t>(rows * columns));
    for (int8_t& v : values) v = static_cast<int8_t>(random.Below(2 * range) - range);
    const int64_t num_groups = form.group_size == 0 ? 1 : columns / form.group_size;
    std::vector<float> scales(static_cast<size_t>(rows * num_groups));
    if (form.dtype == DType::kF4E2M1) {
      constexpr int8_t kIntegers[] = {0, 1, 2, 3, 4, 6, 8, 12, -1, -2, -3, -4, -6, -8, -12};
      for (int8_t& v : values) v = kIntegers[random.Below(15)];
      for (float& s : scales) s = std::ldexp(1.0F, random.Below(9) - 8);
      return {form,
              rows,
              columns,
              std::move(values),
              std::move(scales),
              {},
              CpuWeightLayout(form.dtype)};
    }
    for (float& s : scales) s = (1.5F + random.Uniform()) / static_cast<float>(2 * range);
    std::vector<float> offsets(form.has_offsets ? scales.size() : 0);
    for (float& o : offsets) o = random.Uniform() / 2;
    return {form,
            rows,
            columns,
            std::move(values),
            std::move(scales),
            std::move(offsets),
            CpuWeightLayout(form.dtype)};
  }

  int64_t GroupOf(int64_t n, int64_t k) const {
    return weight.group_size == 0 ? n : n * weight.num_groups() + k / weight.group_size;
  }
  // element * scale, and what stands beside it.
  double Product(int64_t n, int64_t k) const {
    return static_cast<double>(elements[static_cast<size_t>(n * weight.in_features + k)]) *
           scales[static_cast<size_t>(GroupOf(n, k))];
  }
  double Offset(int64_t n, int64_t k) const {
    return offsets.empty() ? 0 : offsets[static_cast<size_t>(GroupOf(n, k))];
  }
  double Value(int64_t n, int64_t k) const { return Product(n, k) + Offset(n, k); }

  std::vector<int8_t> elements;
  std::vector<float> scales, offsets;
  Tensor memory, packed_scales, packed_offsets;
  Weight weight;

 private:
  // PackScales by bytes: kPanel64 of a matrix of them.
  void PackExponents(int64_t num_scales) {
    const int64_t num_groups = weight.num_groups();
    Tensor bytes(DType::kU8, {weight.out_features, num_groups});
    std::ranges::transform(scales, bytes.view().as<uint8_t>(), [](float scale) {
      return static_cast<uint8_t>(128 + std::ilogb(scale));
    });
    packed_scales = Tensor(DType::kU8, {num_scales});
    PackWeight(
        bytes.view(), DType::kU8,
        weight.layout == WeightLayout::kRowMajor ? WeightLayout::kRowMajor : WeightLayout::kPanel64,
        packed_scales.view().data);
    weight.exponents = packed_scales.view().as<const uint8_t>();
  }

  const float* Packed(const std::vector<float>& values, Tensor& packed) const {
    auto* const to = packed.view().as<float>();
    if (weight.group_size == 0)
      std::ranges::copy(values, to);
    else
      PackScales(values.data(), weight.out_features, weight.num_groups(), weight.layout, to);
    return to;
  }
};

// For linears of `num_tokens` with `weight`.
inline Tensor ScratchOf(const Weight& weight, int64_t num_tokens) {
  return {DType::kU8,
          {static_cast<int64_t>(LinearScratchBytes(weight.dtype, num_tokens, weight.in_features,
                                                   weight.group_size))}};
}

}  // namespace inflight::ops

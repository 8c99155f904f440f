// SPDX-License-Identifier: Apache-2.0
// One token's activations to int8 (formula: ops/linear.h). Plain loops, which the compiler turns
// into vectors. Included once by each instruction set's translation unit; all names have internal
// linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

INFLIGHT_INLINE int32_t BitsOf(float x) { return __builtin_bit_cast(int32_t, x); }
INFLIGHT_INLINE int32_t BitsOf(uint16_t bf16) { return static_cast<int32_t>(uint32_t{bf16} << 16); }

template <typename X>
void QuantizeRow(const QuantizeArgs& a) {
  const auto* x = static_cast<const X*>(a.x);
  // Magnitudes are ordered as their bits are, with infinity and NaN above all numbers.
  constexpr int32_t kInfinity = 0x7f800000;
  int32_t largest = 0;
  for (int64_t k = 0; k < a.size; ++k) {
    const int32_t magnitude = BitsOf(x[k]) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float largest_value = __builtin_bit_cast(float, largest);
  const float inverse = 127.0F / largest_value;
  const bool is_number = largest < kInfinity;
  const bool is_zero = BitsOf(inverse) >= kInfinity;  // or so small that it counts as zero
  *a.scale = largest_value / 127.0F;
  if (is_zero) *a.scale = 0;
  if (!is_number) *a.scale = __builtin_nanf("");
  int64_t padding = 0;
  int32_t sum = 0;
  if (is_number && !is_zero) {
    // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
    constexpr float kRounder = 12582912.0F;
    const int32_t base = BitsOf(kRounder);
    for (int64_t k = 0; k < a.size; ++k) {
      const float scaled = __builtin_bit_cast(float, BitsOf(x[k])) * inverse;
      const int32_t q = BitsOf(scaled + kRounder) - base;
      a.values[k] = static_cast<int8_t>(q);
      sum += q;
    }
    padding = a.size;
  }
  *a.sum = sum;
  for (int64_t k = padding; k < (a.size + 63) / 64 * 64; ++k) a.values[k] = 0;
}

void Quantize(const QuantizeArgs& a) {
  if (a.x_element == Element::kBf16)
    QuantizeRow<uint16_t>(a);
  else
    QuantizeRow<float>(a);
}

}  // namespace
}  // namespace inflight::ops::cpu

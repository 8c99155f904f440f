// SPDX-License-Identifier: Apache-2.0
// One token's activations to int8 (formula: ops/linear.h). Plain loops, which the compiler turns
// into vectors; those of a group whose size it knows have no remainders. Included once by each
// instruction set's translation unit; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

INFLIGHT_INLINE int32_t BitsOf(float x) { return __builtin_bit_cast(int32_t, x); }
INFLIGHT_INLINE int32_t BitsOf(uint16_t bf16) { return static_cast<int32_t>(uint32_t{bf16} << 16); }

// `size` elements with one scale: value k is of x[order[k]], or of x[k].
template <bool kIsOrdered, typename X>
INFLIGHT_INLINE void QuantizeGroup(const X* __restrict x, const int32_t* __restrict order,
                                   int64_t size, int8_t* __restrict values, float* scale,
                                   int32_t* sum) {
  // Magnitudes are ordered as their bits are, with infinity and NaN above all numbers.
  constexpr int32_t kInfinity = 0x7f800000;
  int32_t largest = 0;
  const auto bits_at = [&](int64_t k) {
    if constexpr (kIsOrdered)
      return order[k] < 0 ? 0 : BitsOf(x[order[k]]);
    else
      return BitsOf(x[k]);
  };
  for (int64_t k = 0; k < size; ++k) {
    const int32_t magnitude = bits_at(k) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float largest_value = __builtin_bit_cast(float, largest);
  const float inverse = 127.0F / largest_value;
  *sum = 0;
  if (largest >= kInfinity || BitsOf(inverse) >= kInfinity) {
    // No numbers, or ones so small that they count as zero.
    *scale = largest >= kInfinity ? __builtin_nanf("") : 0.0F;
    for (int64_t k = 0; k < size; ++k) values[k] = 0;
    return;
  }
  *scale = largest_value / 127.0F;
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
  constexpr float kRounder = 12582912.0F;
  const int32_t base = BitsOf(kRounder);
  int32_t total = 0;
  for (int64_t k = 0; k < size; ++k) {
    const float scaled = __builtin_bit_cast(float, bits_at(k)) * inverse;
    const int32_t q = BitsOf(scaled + kRounder) - base;
    values[k] = static_cast<int8_t>(q);
    total += q;
  }
  *sum = total;
}

// kSize: of groups, 0 where it is known at run time only.
template <int64_t kSize, typename X>
void QuantizeGroups(const QuantizeArgs& a) {
  const int64_t size = kSize == 0 ? a.size / a.num_groups : kSize;
  const auto* x = static_cast<const X*>(a.x);
  for (int64_t g = 0; g < a.num_groups; ++g) {
    const int64_t first = g * size;
    if (a.order == nullptr)
      QuantizeGroup<false>(x + first, nullptr, size, a.values + first, a.scales + g, a.sums + g);
    else
      QuantizeGroup<true>(x, a.order + first, size, a.values + first, a.scales + g, a.sums + g);
  }
  for (int64_t k = a.size; k < (a.size + 63) / 64 * 64; ++k) a.values[k] = 0;
}

template <typename X>
void QuantizeRow(const QuantizeArgs& a) {
  switch (a.size / a.num_groups) {
    case 16:
      return QuantizeGroups<16, X>(a);
    case 32:
      return QuantizeGroups<32, X>(a);
    case 64:
      return QuantizeGroups<64, X>(a);
    case 128:
      return QuantizeGroups<128, X>(a);
    default:
      return QuantizeGroups<0, X>(a);
  }
}

void Quantize(const QuantizeArgs& a) {
  if (a.x_element == Element::kBf16)
    QuantizeRow<uint16_t>(a);
  else
    QuantizeRow<float>(a);
}

}  // namespace
}  // namespace inflight::ops::cpu

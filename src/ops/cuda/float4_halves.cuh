// SPDX-License-Identifier: Apache-2.0
// float4 codes times the scale of their group to f16 and bf16 (ops/tensor_core_order.h), rounded
// once, as float32 is: exactly, but where a product is none of the dtype's numbers.
#pragma once

#include "ops/cuda/integer_halves.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/tensor_core_order.h"

namespace inflight::ops::cuda {

// The highest e8m0 that WidenFloat4 takes in one step: a scale of 2.
inline constexpr uint32_t kHighestOfOneStep = 128;

// A pair of what HalvesOfFloat4 is times for e8m0 `e`: 2^(e - 1) in bf16, 2^(e - 113) in f16.
// 0 in f16 where every product is nearer to 0 than to its least number.
template <typename T>
__device__ inline uint32_t Float4Scale(uint32_t e) {
  if constexpr (!std::is_same_v<T, __half>) return e * 0x00800080U + 0x3f003f00U;
  if (e >= 99) return (e - 98) * 0x04000400U;
  return e >= 89 ? 0x00010001U << (e - 89) : 0;
}

// What two codes as HalvesOfFloat4 has them stand for with a scale above 2, which is none that
// Float4Scale has: by way of float32.
template <typename T>
__device__ inline uint32_t TimesHighScale(uint32_t halves, uint32_t e) {
  constexpr uint32_t kTwice = std::is_same_v<T, __half> ? 0x78007800U : 0x7f007f00U;
  const float2 twice = UnpackTwo<T>(FmaOfPairs<T>(halves, kTwice, 0x80008000U));
  const float half = __uint_as_float((e - 1) << 23);
  return PackTwo<T>(twice.x * half, twice.y * half);
}

// The eight elements of a lane's word, of a group of scale `e`: pairs[i] holds 2 q + 8 i and the
// one behind. `kMayBeHigh`: whether e may be above kHighestOfOneStep.
template <typename T, bool kMayBeHigh>
__device__ inline void WidenFloat4(uint32_t word, uint32_t e, uint32_t (&pairs)[4]) {
  constexpr bool kIsF16 = std::is_same_v<T, __half>;
  if (!kMayBeHigh || e <= kHighestOfOneStep) {
    const uint32_t scale = Float4Scale<T>(e);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = FmaOfPairs<T>(HalvesOfFloat4<kIsF16>(word, i), scale, 0x80008000U);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = TimesHighScale<T>(HalvesOfFloat4<kIsF16>(word, i), e);
  }
}

}  // namespace inflight::ops::cuda

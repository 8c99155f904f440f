// SPDX-License-Identifier: Apache-2.0
// Eight elements at a time: loads and stores of 16 bytes (of two-byte elements; 8 bytes of e4m3, 32
// of float32), and conversions to float32, in which kernels compute.
//
// Conversions round to nearest even; e4m3 saturates at 448; NaN stays NaN.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "ops/activation.h"

namespace inflight::ops::cuda {

using Fp8 = __nv_fp8_e4m3;

inline constexpr int kVector = 8;  // elements

// Calls use(std::type_identity<T>) with the device type of a float16 or bfloat16 `dtype`, which the
// caller has checked.
template <typename Use>
auto WithHalf(DType dtype, const Use& use) {
  if (dtype == DType::kF16) return use(std::type_identity<__half>());
  return use(std::type_identity<__nv_bfloat16>());
}

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__half x) { return __half2float(x); }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, Fp8>) {
    Fp8 y;
    y.__x = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    return y;
  } else {
    return x;
  }
}

// What x is after it was stored as T.
template <typename T>
__device__ float Rounded(float x) {
  return ToFloat(FromFloat<T>(x));
}

// Two elements in a 32-bit word, the first in the low half.
template <typename T>
__device__ float2 UnpackTwo(uint32_t word) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000U)};
  } else {
    static_assert(std::is_same_v<T, __half>);
    __half2_raw raw;
    raw.x = static_cast<unsigned short>(word);
    raw.y = static_cast<unsigned short>(word >> 16);
    return __half22float2(raw);
  }
}

template <typename T>
__device__ uint32_t PackTwo(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162_raw raw = __floats2bfloat162_rn(low, high);
    return raw.x | static_cast<uint32_t>(raw.y) << 16;
  } else {
    static_assert(std::is_same_v<T, __half>);
    const __half2_raw raw = __floats2half2_rn(low, high);
    return raw.x | static_cast<uint32_t>(raw.y) << 16;
  }
}

__device__ inline uint32_t PackFourFp8(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

// 16 bytes that this kernel reads once: they do not displace in L1 what it reads again.
__device__ inline uint4 LoadOnce(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// Eight two-byte elements.
template <typename T>
__device__ void Unpack(const uint4& words, float (&out)[kVector]) {
  const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = UnpackTwo<T>(all[i]);
    out[2 * i] = two.x;
    out[2 * i + 1] = two.y;
  }
}

template <typename T>
__device__ uint4 Pack(const float (&x)[kVector]) {
  return {PackTwo<T>(x[0], x[1]), PackTwo<T>(x[2], x[3]), PackTwo<T>(x[4], x[5]),
          PackTwo<T>(x[6], x[7])};
}

// Eight elements at an aligned address.
template <typename T>
__device__ void Load(const T* p, float (&out)[kVector]) {
  if constexpr (std::is_same_v<T, float>) {
    const auto* vectors = reinterpret_cast<const float4*>(p);
    const float4 low = vectors[0];
    const float4 high = vectors[1];
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
  } else {
    Unpack<T>(*reinterpret_cast<const uint4*>(p), out);
  }
}

template <typename T>
__device__ void Store(T* p, const float (&x)[kVector]) {
  if constexpr (std::is_same_v<T, float>) {
    auto* vectors = reinterpret_cast<float4*>(p);
    vectors[0] = {x[0], x[1], x[2], x[3]};
    vectors[1] = {x[4], x[5], x[6], x[7]};
  } else if constexpr (std::is_same_v<T, Fp8>) {
    *reinterpret_cast<uint2*>(p) = {PackFourFp8(x[0], x[1], x[2], x[3]),
                                    PackFourFp8(x[4], x[5], x[6], x[7])};
  } else {
    *reinterpret_cast<uint4*>(p) = Pack<T>(x);
  }
}

// Of a row in e4m3 whose largest magnitude is `largest` (QuantizeParams, ops/activation.h).
__device__ inline float Fp8Scale(float largest) { return fmaxf(largest, 0x1p-9F) / 448.0F; }

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
// One element of a float tensor, read and written as float32 whatever its dtype. Elements may lie
// at any address. Other dtypes are our own defect. Elements of int4 share a byte in pairs.
#pragma once

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/dtype.h"

namespace inflight {

template <typename T>
T LoadAs(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + i * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <typename T>
void StoreAs(void* data, int64_t i, T value) {
  std::memcpy(static_cast<std::byte*>(data) + i * int64_t{sizeof(T)}, &value, sizeof(T));
}

// Element i of float32, float16, bfloat16, float64 or float8_e4m3fn.
inline float LoadFloat(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return LoadAs<float>(data, i);
    case DType::kF16:
      return LoadAs<Float16>(data, i).ToFloat();
    case DType::kBF16:
      return LoadAs<BFloat16>(data, i).ToFloat();
    case DType::kF64:
      return static_cast<float>(LoadAs<double>(data, i));
    case DType::kF8E4M3:
      return LoadAs<Float8E4M3>(data, i).ToFloat();
    default:
      CHECK(false);
  }
}

// Element i of float32, float16, bfloat16 or float8_e4m3fn, rounded to nearest even.
inline void StoreFloat(void* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::kF32:
      return StoreAs(data, i, value);
    case DType::kF16:
      return StoreAs(data, i, Float16::FromFloat(value));
    case DType::kBF16:
      return StoreAs(data, i, BFloat16::FromFloat(value));
    case DType::kF8E4M3:
      return StoreAs(data, i, Float8E4M3::FromFloat(value));
    default:
      CHECK(false);
  }
}

// Element i of int4 that begin at `data`.
inline int LoadInt4(const void* data, int64_t i) {
  const int bits = LoadAs<uint8_t>(data, i / 2) >> (i % 2 * 4) & 0xf;
  return (bits ^ 8) - 8;
}

// Twice the values of four bits E2M1, and half of a scale of eight bits E8M0: 2^(e - 128).
// OCP Microscaling Formats (MX) Specification 1.0, sections 5.3.3 and 5.4.1.
inline constexpr std::array<int, 16> kTwiceE2M1 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                   0, -1, -2, -3, -4, -6, -8, -12};
constexpr float HalfOfE8M0(std::byte scale) {
  constexpr uint32_t kLeastBits = 0x00200000;  // 2^-128, below the normal numbers
  const auto e = std::to_integer<uint32_t>(scale);
  return std::bit_cast<float>(e < 2 ? kLeastBits << e : (e - 1) << 23);
}

// Two elements in [-8, 7] as they share a byte.
constexpr uint8_t PackInt4(int first, int second) {
  return static_cast<uint8_t>((first & 0xf) | (second & 0xf) << 4);
}

}  // namespace inflight

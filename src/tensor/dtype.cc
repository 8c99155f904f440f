// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace inflight {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 13> kNames = {{
    {DType::kF32, "float32"},
    {DType::kF16, "float16"},
    {DType::kBF16, "bfloat16"},
    {DType::kF64, "float64"},
    {DType::kI8, "int8"},
    {DType::kU8, "uint8"},
    {DType::kI16, "int16"},
    {DType::kI32, "int32"},
    {DType::kI64, "int64"},
    {DType::kBool, "bool"},
    {DType::kF8E4M3, "float8_e4m3fn"},
    {DType::kI4, "int4"},
    {DType::kF4E2M1, "float4_e2m1fn"},
}};

}  // namespace

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
      return 1;
    case DType::kI4:
    case DType::kF4E2M1:
      CHECK(false);
  }
  return 0;
}

size_t BytesOf(DType dtype, int64_t num_elements) {
  const auto n = static_cast<size_t>(num_elements);
  return HasHalfBytes(dtype) ? n / 2 + n % 2 : n * SizeOf(dtype);
}

std::string_view DTypeName(DType dtype) {
  for (const auto& [value, name] : kNames)
    if (value == dtype) return name;
  return "unknown";
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const auto& [value, known] : kNames)
    if (known == name) return value;
  return std::nullopt;
}

Float16 Float16::FromFloat(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000U;
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {static_cast<uint16_t>(sign | 0x7e00U)};
  if (magnitude >= 0x477ff000U)
    return {static_cast<uint16_t>(sign | 0x7c00U)};  // >= 65520 rounds to infinity
  if (magnitude < 0x38800000U) {                     // subnormal: units of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0F;
    return {static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(scaled)))};
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13))};
}

float Float16::ToFloat() const {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

Float8E4M3 Float8E4M3::FromFloat(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return {static_cast<uint8_t>(sign | 0x7fU)};
  if (magnitude >= kMax) return {static_cast<uint8_t>(sign | 0x7eU)};
  if (magnitude < 0x1p-6F)  // subnormal: units of 2^-9; 8 of them are the least normal number
    return {static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9F)))};
  const uint32_t bits = u & 0x7fffffffU;
  const uint32_t rounded = bits + 0x7ffffU + ((bits >> 20) & 1U);
  return {static_cast<uint8_t>(sign | ((rounded >> 20) - (120U << 3)))};
}

float Float8E4M3::ToFloat() const {
  const uint32_t exponent = (bits >> 3) & 0xfU;
  const uint32_t mantissa = bits & 7U;
  const float sign = (bits & 0x80U) != 0 ? -1.0F : 1.0F;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7fc00000U);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9F;
  return sign * std::bit_cast<float>(((exponent + 120U) << 23) | (mantissa << 20));
}

}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>
#include <cmath>
#include <utility>

namespace inflight {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 10> kNames = {{
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
      return 1;
  }
  return 0;
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

}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, and scalar conversions of the 16-bit floats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace inflight {

// kI4 is two's complement in four bits, [-8, 7], two elements a byte: the first in its low bits
// (tensor/element.h reads and writes them). kF4E2M1 is a float of four bits, laid out likewise.
// Rows of both have an even number of elements.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kF8E4M3,
  kI4,
  kF4E2M1
};

// Whether two elements share a byte.
constexpr bool HasHalfBytes(DType dtype) { return dtype == DType::kI4 || dtype == DType::kF4E2M1; }
size_t SizeOf(DType dtype);                         // bytes of an element; not where it shares one
size_t BytesOf(DType dtype, int64_t num_elements);  // that follow each other, of any dtype
// "float32", "bfloat16", ... as in Hugging Face's `torch_dtype`.
std::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

// bfloat16: the upper half of a float32, rounded to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  static BFloat16 FromFloat(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U) return {static_cast<uint16_t>((u >> 16) | 0x40U)};
    return {static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
  }
  float ToFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE 754 binary16, rounded to nearest even.
struct Float16 {
  uint16_t bits = 0;
  static Float16 FromFloat(float value);
  float ToFloat() const;
};

// FP8 of the E4M3 kind without infinities (arXiv:2209.05433; torch.float8_e4m3fn): 4 exponent bits
// of bias 7, 3 mantissa bits, largest value 448, NaN 0x7f. Rounded to nearest even; what lies
// beyond 448 saturates, as the hardware's conversion does; NaN stays NaN.
struct Float8E4M3 {
  uint8_t bits = 0;
  static constexpr float kMax = 448.0F;
  static Float8E4M3 FromFloat(float value);
  float ToFloat() const;
};

}  // namespace inflight

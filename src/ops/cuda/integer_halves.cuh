// SPDX-License-Identifier: Apache-2.0
// int8 and int4 codes of two's complement to f16 and bf16, exactly, two at a time: the bits of a
// code become the last ones of a number whose spacing is 1, of which a constant is taken away.
// Those of float8_e4m3fn become the first bits of a number's exponent and fraction, which a power
// of two puts right; NaN becomes 480.
//
// Codes that stand 16 bits apart in a word make a pair, the lower one in the low half: a word of
// int4 is the pairs (0, 4), (1, 5), (2, 6), (3, 7) of its nibbles, one of int8 (0, 2), (1, 3) of
// its bytes (ops/tensor_core_order.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace inflight::ops::cuda {

enum class Codes : uint8_t { kInt4, kInt8, kFp8 };
constexpr int BitsOf(Codes codes) { return codes == Codes::kInt4 ? 4 : 8; }

// a * b + c of pairs.
template <typename T>
__device__ inline uint32_t FmaOfPairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  if constexpr (std::is_same_v<T, __half>)
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// (word & mask) ^ bits: one instruction, of which the compiler makes two by itself.
template <uint32_t kMask, uint32_t kPattern>
__device__ inline uint32_t MaskedWith(uint32_t word) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(word), "n"(kMask), "r"(kPattern));
  return out;
}

// The 8 elements of a word of int4, or the 4 of one of 8 bits, as pairs.
template <typename T, Codes kCodes>
__device__ inline void WidenWord(uint32_t word, uint32_t (&pairs)[kCodes == Codes::kInt4 ? 4 : 2]) {
  constexpr bool kIsF16 = std::is_same_v<T, __half>;
  constexpr uint32_t kOne = kIsF16 ? 0x3c003c00U : 0x3f803f80U;
  if constexpr (kCodes == Codes::kFp8) {
    // Exponents move from bias 7 to bias 15 or 127.
    constexpr uint32_t kFactor = kIsF16 ? 0x5c005c00U : 0x7b807b80U;  // 2^8 or 2^120
    constexpr int kDown = kIsF16 ? 1 : 4;
    constexpr uint32_t kMagnitude = kIsF16 ? 0x3f803f80U : 0x07f007f0U;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t two = i == 0 ? word << 8 : word;
      pairs[i] =
          FmaOfPairs<T>((two & 0x80008000U) | (two >> kDown & kMagnitude), kFactor, 0x80008000U);
    }
  } else if constexpr (kCodes == Codes::kInt4 && kIsF16) {
    // code + 8 in the last bits of 1024, or one nibble higher: 1024 + 16 (code + 8).
    constexpr uint32_t kSixteenth = 0x2c002c00U, kMinus1032 = 0xe408e408U, kMinus72 = 0xd480d480U;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t two = word >> (4 * i);
      pairs[i] = FmaOfPairs<T>(MaskedWith<0x000f000fU, 0x64086408U>(two), kOne, kMinus1032);
      pairs[i + 1] = FmaOfPairs<T>(MaskedWith<0x00f000f0U, 0x64806480U>(two), kSixteenth, kMinus72);
    }
  } else if constexpr (kCodes == Codes::kInt4) {
    // code + 8 in the last bits of 128; bf16 has no room for a nibble higher.
    constexpr uint32_t kMinus136 = 0xc308c308U;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] =
          FmaOfPairs<T>(MaskedWith<0x000f000fU, 0x43084308U>(word >> (4 * i)), kOne, kMinus136);
  } else if constexpr (kIsF16) {
    constexpr uint32_t kMinus1152 = 0xe480e480U;  // code + 128 in the last bits of 1024
#pragma unroll
    for (int i = 0; i < 2; ++i)
      pairs[i] =
          FmaOfPairs<T>(MaskedWith<0x00ff00ffU, 0x64806480U>(word >> (8 * i)), kOne, kMinus1152);
  } else {
    // The low 7 bits in the last ones of 128, less 128, or of negative codes less 256.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t two = word >> (8 * i);
      pairs[i] = FmaOfPairs<T>(MaskedWith<0x007f007fU, 0x43004300U>(two), kOne,
                               MaskedWith<0x00800080U, 0xc300c300U>(two));
    }
  }
}

// The 8 elements of a word of int4 as pairs in bf16, each kRaisedBy too much, which whoever adds up
// products takes away times the sum of the other factors: less work for each code than WidenWord.
constexpr float kRaisedBy = 136.0F;
__device__ inline void RaiseWord(uint32_t word, uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = MaskedWith<0x000f000fU, 0x43084308U>(word >> (4 * i));
}

// Word `w` of 16 bytes; `w` is known where this is compiled.
__device__ inline uint32_t WordOf(const uint4& v, int w) {
  return w == 0 ? v.x : w == 1 ? v.y : w == 2 ? v.z : v.w;
}

// Of a lane's 16 bytes of a slab in the order of tensor cores, steps 2 `pair` and the one behind:
// two pairs of each.
template <typename T, Codes kCodes>
__device__ inline void WidenTwoSteps(const uint4& codes, int pair, uint32_t (&pairs)[4]) {
  if constexpr (kCodes == Codes::kInt4) {
    WidenWord<T, kCodes>(WordOf(codes, pair), pairs);
  } else {
    uint32_t two[2];
    WidenWord<T, kCodes>(WordOf(codes, 2 * pair), two);
    pairs[0] = two[0], pairs[1] = two[1];
    WidenWord<T, kCodes>(WordOf(codes, 2 * pair + 1), two);
    pairs[2] = two[0], pairs[3] = two[1];
  }
}

}  // namespace inflight::ops::cuda

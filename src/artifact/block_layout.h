// SPDX-License-Identifier: Apache-2.0
// Where the parts of packed blocks lie: the block_* structs of ggml-org/ggml/src/ggml-common.h. Of
// the small blocks, element i of 32 is in the low bits of byte i, and element 16 + i in the high
// bits of the same. Blocks of 256 are sub-blocks of 16 or 32 with small scales of their own, which
// a scale of all multiplies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/element.h"

namespace inflight::artifact::block_layout {

inline constexpr int kSmall = 32;
inline constexpr int kHalf = kSmall / 2;
inline constexpr int kLarge = 256;

inline int Byte(const std::byte* at, int i) { return std::to_integer<int>(at[i]); }
inline int SignedByte(const std::byte* at, int i) { return static_cast<int8_t>(at[i]); }
inline float Half(const std::byte* at) { return LoadAs<Float16>(at, 0).ToFloat(); }

// Of 32 elements in 16 bytes.
inline int Nibble(const std::byte* at, int i) {
  return i < kHalf ? Byte(at, i) & 0xf : Byte(at, i - kHalf) >> 4;
}

// Five bits: a nibble, and the fifth of element i as bit i of a word.
inline int FiveBits(const std::byte* fifth, const std::byte* nibbles, int i) {
  return Nibble(nibbles, i) | static_cast<int>(LoadAs<uint32_t>(fifth, 0) >> i & 1U) << 4;
}

// Element i of 256 in 64 bytes: byte i % 32 of the half, two bits from 2 * (i / 32 % 4) on.
inline int TwoBits(const std::byte* at, int i) {
  return Byte(at, i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
}

// Scale `sub` of 16: its low four bits are a nibble of the first 8 bytes, its high two bits are in
// the 4 bytes behind them.
inline int SixBitScale(const std::byte* at, int sub) {
  const int low = sub < 8 ? Byte(at, sub) & 0xf : Byte(at, sub - 8) >> 4;
  const int high = Byte(at, 8 + sub % 4) >> (sub / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

struct ScaleAndLeast {
  int scale, least;
};

// Of sub-block `sub` of 8, six bits each in 12 bytes: whole in the low bits of the first 8 for the
// first four; for the others low bits in the last 4 bytes, high bits above those of the first.
inline ScaleAndLeast SixBitPair(const std::byte* at, int sub) {
  if (sub < 4) return {Byte(at, sub) & 0x3f, Byte(at, sub + 4) & 0x3f};
  const int low = Byte(at, sub + 4);
  return {(low & 0xf) | Byte(at, sub - 4) >> 6 << 4, low >> 4 | Byte(at, sub) >> 6 << 4};
}

// Element i of 256 in 128 bytes: byte i % 32 of the quarter, its low bits for the first 32 of 64.
inline int NibbleOfPairs(const std::byte* at, int i) {
  return Byte(at, i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 0xf;
}

// Sixteen levels, close together near zero.
inline constexpr std::array<int, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace inflight::artifact::block_layout

// SPDX-License-Identifier: Apache-2.0
// int8, int4, float4 and grouped FP8 weights on a GPU in the order in which its tensor cores take
// them (WeightLayout::kTensorCore).
//
// mma.m16n8k16 multiplies 16 elements of k at a time. Lane l of a warp holds elements 2 q, 2 q + 1,
// 2 q + 8 and 2 q + 9 of two rows, q = l % 4. A slab, 64 bytes of a row, is so many steps of 16:
//
//   int4  8 steps    word w of the lane's 16 bytes: elements e, e + 8, e + 16, e + 24 in the low
//                    bits, from the lowest on, and those behind them 16 bits above; e = 32 w + 2 q
//   int8, 4 steps    word w: bytes e, e + 8, e + 1, e + 9; e = 16 w + 2 q
//   FP8
//
// so that one read brings a lane its part of a slab, and a mask and a shift give pairs of elements
// in k's own order: activations need no order of their own, and groups of 16 elements or more end
// between steps. Scales and offsets of groups lie in panels of 64 rows, those of one group side by
// side.
//
// float4 has rows of 16 bytes for each 32 elements, which are a group, two steps and a word for
// each lane: elements 2 q + 8 i, i < 4, in the lower half of the word and those behind them in the
// upper one. Signs and magnitudes of the four stand where shifts bring them to the places that they
// have in bfloat16 (OrderedFloat4, HalvesOfFloat4).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/weight.h"
#include "tensor/device.h"

namespace inflight::ops {

inline constexpr int kSlabBytes = 64;       // of a row of codes
inline constexpr int kScalePanelRows = 64;  // of a panel of scales or offsets

constexpr int SlabElements(int bits) { return kSlabBytes * 8 / bits; }

inline constexpr int kFloat4Unit = 32;  // elements of 16 bytes of float4

// The word of lane q out of the 16 bytes of a row, element 8 i + j in bits 4 j of words[i].
constexpr uint32_t OrderedFloat4(const uint32_t (&words)[4], int q) {
  constexpr int kSignAt[] = {9, 12, 15, 14};
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half) {
      const uint32_t code = words[i] >> (4 * (2 * q + half));
      const uint32_t magnitude =
          i < 3 ? (code & 7U) << (3 * i) : (code & 3U) << 10 | (code & 4U) << 11;
      out |= (magnitude | (code >> 3 & 1U) << kSignAt[i]) << (16 * half);
    }
  return out;
}

// Elements 2 q + 8 i and the one behind it of such a word as two numbers of 16 bits, times 2^-126
// in bfloat16 or 2^-14 in float16: sign, the last two bits of the exponent, the first one of the
// fraction. Exact; halves of the least numbers are below the normal ones.
template <bool kIsF16>
constexpr uint32_t HalvesOfFloat4(uint32_t word, int i) {
  constexpr uint32_t kSign = 0x80008000U;
  constexpr int kUp = kIsF16 ? 3 : 0;  // float16 has three bits fewer of an exponent
  constexpr uint32_t kMagnitude = 0x01c001c0U << kUp;
  if (i == 2 && !kIsF16) return word & (kSign | kMagnitude);
  if (i < 3) {
    const int up = 6 - 3 * i;
    if constexpr (kIsF16) return (word << up & kSign) | (word << (up + kUp) & kMagnitude);
    return word << up & (kSign | kMagnitude);
  }
  return (word << 1 & kSign) | (word >> (5 - kUp) & 0x01000100U << kUp) |
         (word >> (4 - kUp) & 0x00c000c0U << kUp);
}

// Of an int8, int4 or FP8 weight: bits of a code, and groups that a slab has scales of, at least 1.
inline int CodeBits(const Weight& weight) { return weight.dtype == DType::kI4 ? 4 : 8; }
inline int SlabGroups(const Weight& weight) {
  if (weight.group_size == 0) return 1;
  const int64_t slab = SlabElements(CodeBits(weight));
  return static_cast<int>(std::max<int64_t>(1, slab / weight.group_size));
}

// The form of a weight of experts, without rows.
struct ExpertCodes {
  DType codes = DType::kI8;
  int64_t in_features = 0;
  int64_t group_size = 0;  // 0: each row is one
};

// Whether CUDA's products of experts read such codes as they are, in the order of tensor cores:
// float4; FP8 in groups of 128; int8 and int4 in rows of whole slabs, in groups of a power of two
// from 16 on or of whole rows.
constexpr bool ExpertsTakeCodes(const ExpertCodes& form) {
  constexpr int64_t kFp8Group = 128;
  const int64_t k = form.in_features, group = form.group_size;
  switch (form.codes) {
    case DType::kF4E2M1:
      return group == kFloat4Unit && k % (2 * kFloat4Unit) == 0;
    case DType::kF8E4M3:
      return group == kFp8Group && k % kFp8Group == 0;
    case DType::kI8:
    case DType::kI4:
      return k % SlabElements(form.codes == DType::kI4 ? 4 : 8) == 0 &&
             (group == 0 || group == k ||
              (group >= kGroupStep && std::has_single_bit(static_cast<uint64_t>(group)) &&
               k % group == 0));
    default:
      return false;
  }
}

// Whether OrderForTensorCores takes the weight: row-major int8 or int4 in device or pinned memory,
// in whole panels and slabs, whose groups are of 16, 32, ... elements of a slab or of whole slabs.
// Others stay as they are, and are widened where they are multiplied. Groups of FP8 are whole
// slabs. Of float4 it takes rows of whole pairs of groups.
bool CanOrderForTensorCores(const Weight& weight);

// Reorders codes, scales and offsets in place, and says so in weight->layout. Returns when it is
// done.
Status OrderForTensorCores(Device& device, Weight* weight);

}  // namespace inflight::ops

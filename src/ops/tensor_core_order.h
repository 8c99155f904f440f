// SPDX-License-Identifier: Apache-2.0
// int8 and int4 weights on a GPU in the order in which its tensor cores take them
// (WeightLayout::kTensorCore).
//
// mma.m16n8k16 multiplies 16 elements of k at a time. Lane l of a warp holds elements 2 q, 2 q + 1,
// 2 q + 8 and 2 q + 9 of two rows, q = l % 4. A slab, 64 bytes of a row, is so many steps of 16:
//
//   int4  8 steps    word w of the lane's 16 bytes: elements e, e + 8, e + 16, e + 24 in the low
//                    bits, from the lowest on, and those behind them 16 bits above; e = 32 w + 2 q
//   int8  4 steps    word w: bytes e, e + 8, e + 1, e + 9; e = 16 w + 2 q
//
// so that one read brings a lane its part of a slab, and a mask and a shift give pairs of elements
// in k's own order: activations need no order of their own, and groups of 16 elements or more end
// between steps. Scales and offsets of groups lie in panels of 64 rows, those of one group side by
// side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/weight.h"
#include "tensor/device.h"

namespace inflight::ops {

inline constexpr int kSlabBytes = 64;       // of a row of codes
inline constexpr int kScalePanelRows = 64;  // of a panel of scales or offsets

constexpr int SlabElements(int bits) { return kSlabBytes * 8 / bits; }

// Of an int8 or int4 weight: bits of a code, and groups that a slab has scales of, at least 1.
inline int CodeBits(const Weight& weight) { return weight.dtype == DType::kI4 ? 4 : 8; }
inline int SlabGroups(const Weight& weight) {
  if (weight.group_size == 0) return 1;
  const int64_t slab = SlabElements(CodeBits(weight));
  return static_cast<int>(std::max<int64_t>(1, slab / weight.group_size));
}

// Whether OrderForTensorCores takes the weight: row-major int8 or int4 in device or pinned memory,
// in whole panels and slabs, whose groups are of 16, 32, ... elements of a slab or of whole slabs.
// Others stay as they are, and are widened where they are multiplied.
bool CanOrderForTensorCores(const Weight& weight);

// Reorders codes, scales and offsets in place, and says so in weight->layout. Returns when it is
// done.
Status OrderForTensorCores(Device& device, Weight* weight);

}  // namespace inflight::ops

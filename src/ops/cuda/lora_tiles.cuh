// SPDX-License-Identifier: Apache-2.0
// Adapters of low rank (ops/lora.h), of any mixture in one launch (as arXiv:2310.18547 and
// arXiv:2311.03285 have it), over tiles of tokens that have one adapter. Two kernels of a linear:
//
//   lora_shrink.cu   sums[token][row] = x[token] . A[row]      stands before the product, so that A
//                                                              comes from memory while the kernel
//                                                              before ends
//   lora_expand.cu   y[token] += sums[token] B + bias          stands behind it
//
// Both read each row of a factor once for the tokens of a tile, from memory into the lanes that
// feed it to the tensor cores. With many adapters most of the time is theirs to come: a CTA has
// items that are neighbours, so that it looks a tile up once, and asks for the factors of its next
// step before it ends the one that it has. A dot product does not care which k comes first, nor a
// product of matrices which row: a lane's 16 bytes are the elements of a fragment, without
// shuffles. Tokens without an adapter are in no tile and keep their bits. A token's sums have one
// order, whatever its tile, its step and the cut of the work are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/vector.cuh"
#include "ops/lora.h"

namespace inflight::ops::cuda::lora {

constexpr int kWarp = 32;
constexpr int kGroup = 8;     // tokens: the columns of a fragment
constexpr int kRowTile = 16;  // rows of A, and ranks of B, at a time
constexpr int kMaxSites = 2;  // of a launch
constexpr int kChunk = 1024;  // features of x whose sums are one partial sum
constexpr unsigned kAllLanes = 0xffffffffU;

// What is to be done, counted by tile first: CTA i has as many neighbouring items as each other.
struct Work {
  int items_per_tile;
  int chunks;     // shrink: of x, a CTA each, whose sums expand adds up; 1 = a CTA sums all
  int row_parts;  // shrink: CTAs of a chunk, which take rows of A in turn
};
// Tiles, and which tokens are theirs, are read before the kernels before have ended: they are there
// since the step's beginning, but L1 may hold those of the step before.
__device__ inline LoraTile TileAt(const LoraDevice& lora, int i) {
  const int4 tile = __ldcg(reinterpret_cast<const int4*>(lora.tiles) + i);
  return {.adapter = tile.x, .first = tile.y, .num = tile.z};
}
__device__ inline int TokenAt(const LoraDevice& lora, const LoraTile& tile, int i) {
  return __ldcg(lora.order + tile.first + min(i, tile.num - 1));
}

// Calls run(tile, first, end) for each tile of which this CTA has items [first, end). Where there
// are no more items than CTAs, which is known late, the first tile is the right guess.
template <typename Run>
__device__ void ForEachTile(const LoraDevice& lora, const Work& work, Run run) {
  const auto cta = static_cast<int>(blockIdx.x);
  const auto num_ctas = static_cast<int>(gridDim.x);
  const int guess = cta / work.items_per_tile;
  LoraTile tile = TileAt(lora, guess);
  const int num_items = __ldcg(lora.num_tiles) * work.items_per_tile;
  const int share = (num_items + num_ctas - 1) / num_ctas;
  const int end = min((cta + 1) * share, num_items);
  for (int item = cta * share; item < end;) {
    const int index = item / work.items_per_tile;
    if (index != guess || share > 1) tile = TileAt(lora, index);
    const int begin = index * work.items_per_tile;
    const int tile_end = min(end - begin, work.items_per_tile);
    run(tile, item - begin, tile_end);
    item = begin + tile_end;
  }
}

// The adapter's parts at the launch's sites, a lane each: one access to memory. Tables and factors
// are there before the step begins.
struct Parts {
  uint4 pointers, numbers;  // halves of LoraDevicePart

  __device__ Parts(const LoraAddParams& p, int adapter) : pointers{}, numbers{} {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane >= p.num_sites * kMaxLoraParts) return;
    const int64_t layer = static_cast<int64_t>(adapter) * p.lora.num_layers + p.layer;
    const LoraDevicePart* const own =
        p.lora.parts + (layer * kNumLoraSites + static_cast<int>(p.first_site)) * kMaxLoraParts +
        lane;
    static_assert(sizeof(LoraDevicePart) == 2 * sizeof(uint4));
    pointers = reinterpret_cast<const uint4*>(own)[0];
    numbers = reinterpret_cast<const uint4*>(own)[1];
  }
  __device__ int Rank(int i) const {
    return static_cast<int>(__shfl_sync(kAllLanes, numbers.x, i));
  }
  __device__ bool IsThere(int i) const { return __shfl_sync(kAllLanes, numbers.z, i) != 0; }
  __device__ LoraDevicePart At(int i) const {
    const auto pointer = [i](uint32_t low, uint32_t high) {
      const uint64_t address = __shfl_sync(kAllLanes, low, i) |
                               static_cast<uint64_t>(__shfl_sync(kAllLanes, high, i)) << 32;
      return reinterpret_cast<const void*>(address);
    };
    return {.a = pointer(pointers.x, pointers.y),
            .b = pointer(pointers.z, pointers.w),
            .rank = Rank(i),
            .first_feature = static_cast<int32_t>(__shfl_sync(kAllLanes, numbers.y, i)),
            .num_features = static_cast<int32_t>(__shfl_sync(kAllLanes, numbers.z, i))};
  }
};

inline int Ceiling(int64_t n, int64_t size) { return static_cast<int>((n + size - 1) / size); }

// Chunks of x that different CTAs sum: all, where there is room for their sums.
inline int ChunksOf(const LoraAddParams& p) {
  const int chunks = Ceiling(p.in_features, kChunk);
  return p.num_tokens * int64_t{chunks} <= p.lora.num_sums ? chunks : 1;
}

// As many CTAs as there may be items, or as run at once: how many items there are only the device
// knows.
inline unsigned NumCtas(const LoraAddParams& p, const Work& work, int resident) {
  return static_cast<unsigned>(
      std::min<int64_t>(int64_t{p.num_tokens} * work.items_per_tile, resident));
}

inline Status Validate(const LoraAddParams& p) {
  RETURN_IF_ERROR(ExpectHalf("x", p.dtype));
  const bool has_room = p.lora.sums == nullptr || p.num_tokens <= p.lora.num_sums;
  if (p.in_features % kVector == 0 && p.out_features % kVector == 0 && p.y_stride % kVector == 0 &&
      IsAligned(p.x) && IsAligned(p.y) && IsAligned(p.z) && p.num_sites <= kMaxSites && has_room)
    return Status::Ok();
  return InvalidArgument(
      "lora: got " + std::to_string(p.num_tokens) + " tokens of " + std::to_string(p.in_features) +
      " features, " + std::to_string(p.num_sites) + " sites of " + std::to_string(p.out_features) +
      " in rows of " + std::to_string(p.y_stride) + ", needed at most " +
      std::to_string(p.lora.num_sums) +
      " tokens, 2 sites, multiples of 8 features, addresses of 16 bytes");
}

}  // namespace inflight::ops::cuda::lora

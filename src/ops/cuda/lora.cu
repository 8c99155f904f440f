// SPDX-License-Identifier: Apache-2.0
// Adapters of low rank (ops/lora.h), of any mixture in one launch (as arXiv:2310.18547 and
// arXiv:2311.03285 have it), over tiles of tokens that have one adapter. Two kernels of a linear:
//
//   shrink   sums[token][row] = x[token] . A[row]      stands before the product, so that A comes
//                                                      from memory while the kernel before ends
//   expand   y[token] += sums[token] B + bias          stands behind it
//
// Both read each row of a factor once for the tokens of a tile, from memory into the lanes that
// feed it to the tensor cores. A dot product does not care which k comes first, nor a product of
// matrices which row: a lane's 16 bytes are the elements of a fragment, without shuffles. Tokens
// without an adapter are in no tile and keep their bits. A token's sums have one order, whatever
// its tile, its step and the cut of the work are.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/status_macros.h"
#include "ops/cuda/activate.cuh"
#include "ops/cuda/arguments.h"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/vector.cuh"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kGroup = 8;     // tokens: the columns of a fragment
constexpr int kRowTile = 16;  // rows of A, and ranks of B, at a time
constexpr int kMaxSites = 2;  // of a launch
constexpr unsigned kAllLanes = 0xffffffffU;

constexpr int kShrinkWarps = 8;
constexpr int kSlice = 32;                               // features of a multiplication, 8 a lane
constexpr int kSlices = 4;                               // of a warp, in a chunk
constexpr int kChunk = kShrinkWarps * kSlices * kSlice;  // features whose sums are one partial sum
constexpr int kShrinkCtas = 2;                           // of a multiprocessor

constexpr int kExpandWarps = 4;
// CTAs that run at once on a multiprocessor; large tiles take more registers.
constexpr int ExpandCtas(int groups) { return groups == kLargeLoraTile / kGroup ? 3 : 4; }
constexpr int kBlock = 64;                     // features of a warp at a time, 8 a lane of a column
constexpr int kSumsStride = kMaxLoraRank + 4;  // 4 more keep the tokens in different banks

// What is to be done, counted by tile first: CTA i of `num_ctas` has items i, i + num_ctas, ...
struct Work {
  int items_per_tile;
  int chunks;     // shrink: of x, a CTA each, whose sums expand adds up; 1 = a CTA sums all
  int row_parts;  // shrink: CTAs of a chunk, which take rows of A in turn
};
// Tiles, and which tokens are theirs, are read before the kernels before have ended: they are there
// since the step's beginning, but L1 may hold those of the step before.
__device__ LoraTile TileAt(const LoraDevice& lora, int i) {
  const int4 tile = __ldcg(reinterpret_cast<const int4*>(lora.tiles) + i);
  return {.adapter = tile.x, .first = tile.y, .num = tile.z};
}
__device__ int TokenAt(const LoraDevice& lora, const LoraTile& tile, int i) {
  return __ldcg(lora.order + tile.first + min(i, tile.num - 1));
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

// The slices that this warp has of a chunk, of 16 rows of A from `row` on: rows g and g + 8 of lane
// 4 g + j, its 8 features of each slice. Zeros beyond the rank and the width.
__device__ void LoadA(const LoraDevicePart& part, int row, int64_t in_features, int64_t feature,
                      uint4 (&a)[kSlices][2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + lane / 4 + 8 * half;
    const auto* const from =
        static_cast<const uint16_t*>(part.a) + own * LoraStride(in_features) + feature;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const bool is_there = own < part.rank && feature + s * kSlice < in_features;
      a[s][half] = is_there ? LoadOnce(from + s * kSlice) : uint4{};
    }
  }
}

// c += the slices' products, of the tokens of each group.
template <typename T, int kGroups>
__device__ void Multiply(const LoraAddParams& p, const LoraTile& tile, int64_t feature,
                         const int (&tokens)[kGroups], const uint4 (&a)[kSlices][2],
                         float (&c)[kGroups][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (group * kGroup >= tile.num) break;
    const bool is_token = group * kGroup + lane / 4 < tile.num;
    const auto* const from =
        static_cast<const uint16_t*>(p.x) + tokens[group] * p.in_features + feature;
    uint4 x[kSlices];
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const bool is_there = is_token && feature + s * kSlice < p.in_features;
      x[s] = is_there ? *reinterpret_cast<const uint4*>(from + s * kSlice) : uint4{};
    }
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      Mma<T>(c[group], {a[s][0].x, a[s][1].x, a[s][0].y, a[s][1].y}, x[s].x, x[s].y);
      Mma<T>(c[group], {a[s][0].z, a[s][1].z, a[s][0].w, a[s][1].w}, x[s].z, x[s].w);
    }
  }
}

// Sums of 16 rows of a part from `row` on, which are rows [first, first + 16) of the token's, over
// chunk `own_chunk` alone or, where the work has no chunks, over all of x.
template <typename T, int kGroups>
__device__ void ShrinkRows(const LoraAddParams& p, const Work& work, const LoraTile& tile,
                           const int (&tokens)[kGroups], const LoraDevicePart& part, int row,
                           int first, int own_chunk) {
  constexpr int kTokens = kGroups * kGroup;
  constexpr int kThreads = kShrinkWarps * kWarp;
  constexpr int kOwn = (kTokens * kRowTile + kThreads - 1) / kThreads;  // sums of a thread
  __shared__ float partial[kShrinkWarps][kTokens][kRowTile + 1];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int end =
      work.chunks > 1 ? own_chunk + 1 : static_cast<int>((p.in_features + kChunk - 1) / kChunk);
  float total[kOwn] = {};
  for (int chunk = own_chunk; chunk < end; ++chunk) {
    const int64_t feature = int64_t{chunk} * kChunk + warp * kSlices * kSlice + lane % 4 * kVector;
    uint4 a[kSlices][2];
    LoadA(part, row, p.in_features, feature, a);
    WaitForKernelBefore();
    float c[kGroups][4] = {};
    Multiply<T>(p, tile, feature, tokens, a, c);
    __syncthreads();  // who reads what was there before
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        partial[warp][group * kGroup + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = c[group][i];
    __syncthreads();
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const int i = own * kThreads + thread;
      if (i >= kTokens * kRowTile) break;
      float sum = partial[0][i / kRowTile][i % kRowTile];
#pragma unroll
      for (int w = 1; w < kShrinkWarps; ++w) sum += partial[w][i / kRowTile][i % kRowTile];
      total[own] = chunk == own_chunk ? sum : total[own] + sum;
    }
  }
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    const int i = own * kThreads + thread;
    const int token = i / kRowTile;
    if (i >= kTokens * kRowTile || token >= tile.num || row + i % kRowTile >= part.rank) break;
    const int64_t at = int64_t{own_chunk} * p.num_tokens + tile.first + token;
    p.lora.sums[at * p.lora.sums_stride + first + i % kRowTile] = total[own];
  }
}

template <typename T, int kGroups>
__global__ void __launch_bounds__(kShrinkWarps* kWarp, kShrinkCtas)
    ShrinkKernel(const __grid_constant__ LoraAddParams p, const Work work) {
  LetKernelBehindStart();
  LoraTile tile = TileAt(p.lora, static_cast<int>(blockIdx.x) / work.items_per_tile);
  const int num_items = __ldcg(p.lora.num_tiles) * work.items_per_tile;
  for (int item = static_cast<int>(blockIdx.x); item < num_items;) {
    const LoraTile own = tile;
    const int chunk = item / work.row_parts % work.chunks;
    const int row_part = item % work.row_parts;
    item += static_cast<int>(gridDim.x);
    if (item < num_items) tile = TileAt(p.lora, item / work.items_per_tile);
    const Parts parts(p, own.adapter);
    int tokens[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      tokens[group] =
          TokenAt(p.lora, own, group * kGroup + static_cast<int>(threadIdx.x) % kWarp / 4);
    int turn = 0;
    int first = 0;  // of the part's rows among the token's
#pragma unroll 1
    for (int i = 0; i < p.num_sites * kMaxLoraParts; ++i) {
      const int rank = parts.Rank(i);
      if (rank == 0) continue;
      const LoraDevicePart part = parts.At(i);
      for (int row = 0; row < rank; row += kRowTile, ++turn)
        if (turn % work.row_parts == row_part)
          ShrinkRows<T, kGroups>(p, work, own, tokens, part, row, first + row, chunk);
      first += rank;
    }
  }
  WaitForKernelBefore();  // whoever is behind this kernel waits for those before it, too
}

// The part's sums of the tile's tokens, those of chunks added up in order.
template <int kTokens>
__device__ void GatherSums(const LoraAddParams& p, const LoraTile& tile, int rank, int first,
                           int chunks, float (&sums)[kTokens][kSumsStride]) {
  constexpr int kThreads = kExpandWarps * kWarp;
  const int padded = (rank + kRowTile - 1) / kRowTile * kRowTile;
  const int64_t next = p.num_tokens * p.lora.sums_stride;
  const int num_tokens = (tile.num + kGroup - 1) / kGroup * kGroup;
  for (int i = static_cast<int>(threadIdx.x); i < num_tokens * padded; i += kThreads) {
    const int token = i / padded;
    const int row = i % padded;
    float sum = 0;
    if (token < tile.num && row < rank) {
      const float* const from =
          p.lora.sums + (tile.first + token) * p.lora.sums_stride + first + row;
      sum = from[0];
#pragma unroll 4
      for (int chunk = 1; chunk < chunks; ++chunk) sum += from[chunk * next];
    }
    sums[token][row] = sum;
  }
}

// Ranks [row, row + 16) of B in 8 columns of y from the lane's on: ranks row + j, + 4, + 8 and + 12
// of lane 4 g + j.
__device__ void LoadB(const LoraDevicePart& part, int row, int64_t column, uint4 (&b)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool has_column = column >= 0 && column < part.num_features;
  const int64_t stride = LoraStride(part.num_features);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int own = row + lane % 4 + 4 * i;
    const auto* const from = static_cast<const uint16_t*>(part.b) + own * stride + column;
    b[i] = has_column && own < part.rank ? LoadOnce(from) : uint4{};
  }
}

__device__ void MmaTf32(float (&c)[4], const float (&a)[4], float b0, float b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// c[i] += of columns 2 i and 2 i + 1 of the lane's 8, for tokens 2 j and 2 j + 1 of the group.
// Elements of B are exact in tf32 (11 bits); a sum is taken as two of those, of 22 bits together.
template <typename T>
__device__ void MultiplySums(const uint4 (&b)[4], const float* sums, float (&c)[4][4]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    float low[kVector];
    float high[kVector];
    Unpack<T>(b[2 * step], low);
    Unpack<T>(b[2 * step + 1], high);
    const float s0 = sums[8 * step];
    const float s1 = sums[8 * step + 4];
    const float t0 = __uint_as_float(__float_as_uint(s0) & 0xffffe000U);
    const float t1 = __uint_as_float(__float_as_uint(s1) & 0xffffe000U);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float a[4] = {low[2 * i], low[2 * i + 1], high[2 * i], high[2 * i + 1]};
      MmaTf32(c[i], a, t0, t1);
      MmaTf32(c[i], a, s0 - t0, s1 - t1);
    }
  }
}

// y = act(z + what the adapter adds + bias) of 8 columns of a token.
template <typename T>
__device__ void AddTo(const LoraAddParams& p, const uint4& z, int64_t token, int64_t column,
                      const float (&added)[kVector]) {
  float values[kVector];
  Unpack<T>(z, values);
#pragma unroll
  for (int v = 0; v < kVector; ++v) values[v] += added[v];
  if (p.bias != nullptr) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) values[v] += p.bias[column + v];
  }
  Activate(p.activation, values);
  Store(static_cast<T*>(p.y) + token * p.y_stride + column, values);
}

// The bias of a part in the lane's 8 columns, which are those from `column` on of the part.
template <int kGroups>
__device__ void AddBias(const LoraDevicePart& part, int64_t column, float (&c)[kGroups][4][4]) {
  const auto* const from =
      reinterpret_cast<const float4*>(static_cast<const float*>(part.b) + column);
  const float4 low = from[0];
  const float4 high = from[1];
  const float values[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int v = 0; v < kVector; ++v)
#pragma unroll
      for (int t = 0; t < 2; ++t) c[group][v / 2][v % 2 * 2 + t] += values[v];
}

template <int kGroups, int kBlocks>
__device__ void LoadZ(const LoraAddParams& p, const LoraTile& tile, const int (&tokens)[kGroups][2],
                      int64_t column, uint4 (&z)[kBlocks][kGroups][2]) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (group * kGroup >= tile.num) break;
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        if (column + block * kBlock < p.num_sites * p.out_features)
          z[block][group][t] = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.z) +
                                                               tokens[group][t] * p.y_stride +
                                                               column + block * kBlock);
  }
}

// Columns of y of a tile, kBlocks times 64 a warp, from `cta_column` on: sums in registers, then
// all of y once.
template <typename T, int kGroups, int kBlocks>
__device__ void ExpandTile(const LoraAddParams& p, const LoraTile& tile, int64_t cta_column,
                           int chunks) {
  constexpr int kTokens = kGroups * kGroup;
  constexpr int kColumns = kBlocks * kBlock;  // of a warp
  __shared__ float sums[kTokens][kSumsStride];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = cta_column + warp * kColumns + lane / 4 * kVector;  // the lane's first
  const Parts parts(p, tile.adapter);
  int tokens[kGroups][2];
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int t = 0; t < 2; ++t)
      tokens[group][t] = TokenAt(p.lora, tile, group * kGroup + lane % 4 * 2 + t);
  uint4 z[kBlocks][kGroups][2] = {};
  bool has_z = false;
  bool has_bias = false;
  float c[kBlocks][kGroups][4][4] = {};
  bool is_changed[kBlocks] = {};
  int first = 0;
#pragma unroll 1
  for (int i = 0; i < p.num_sites * kMaxLoraParts; ++i) {
    if (!parts.IsThere(i)) continue;
    const int rank = parts.Rank(i);
    const int own_first = first;
    first += rank;
    const LoraDevicePart part = parts.At(i);
    const int64_t begin = i / kMaxLoraParts * p.out_features + part.first_feature;
    if (begin >= cta_column + kExpandWarps * kColumns || begin + part.num_features <= cta_column)
      continue;
    if (rank == 0) {
      has_bias = true;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int64_t at = column + block * kBlock - begin;
        if (at < 0 || at >= part.num_features) continue;
        AddBias(part, at, c[block]);
        is_changed[block] = true;
      }
      continue;
    }
    for (int row = 0; row < rank; row += kRowTile) {
      uint4 b[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int64_t at = column + block * kBlock - begin;
        LoadB(part, row, at, b[block]);
        is_changed[block] |= at >= 0 && at < part.num_features;
      }
      if (row == 0) {
        WaitForKernelBefore();
        if (!has_z) LoadZ(p, tile, tokens, column, z);
        has_z = true;
        __syncthreads();  // who reads what was there before
        GatherSums(p, tile, rank, own_first, chunks, sums);
        __syncthreads();
      }
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (group * kGroup >= tile.num) break;
        const float* const own = &sums[group * kGroup + lane / 4][row + lane % 4];
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
          MultiplySums<T>(b[block], own, c[block][group]);
      }
    }
  }
  if (has_bias && !has_z) {
    WaitForKernelBefore();
    LoadZ(p, tile, tokens, column, z);
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      if (group * kGroup + lane % 4 * 2 + t >= tile.num) continue;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        if (!is_changed[block]) continue;
        const float(&sum)[4][4] = c[block][group];
        AddTo<T>(p, z[block][group][t], tokens[group][t], column + block * kBlock,
                 {sum[0][t], sum[0][2 + t], sum[1][t], sum[1][2 + t], sum[2][t], sum[2][2 + t],
                  sum[3][t], sum[3][2 + t]});
      }
    }
}

template <typename T, int kGroups, int kBlocks>
__global__ void __launch_bounds__(kExpandWarps* kWarp, ExpandCtas(kGroups))
    ExpandKernel(const __grid_constant__ LoraAddParams p, const Work work) {
  LetKernelBehindStart();
  LoraTile tile = TileAt(p.lora, static_cast<int>(blockIdx.x) / work.items_per_tile);
  const int num_items = __ldcg(p.lora.num_tiles) * work.items_per_tile;
  for (int item = static_cast<int>(blockIdx.x); item < num_items;) {
    const LoraTile own = tile;
    const int64_t columns = item % work.items_per_tile;
    item += static_cast<int>(gridDim.x);
    if (item < num_items) tile = TileAt(p.lora, item / work.items_per_tile);
    ExpandTile<T, kGroups, kBlocks>(p, own, columns * kExpandWarps * kBlocks * kBlock, work.chunks);
  }
  WaitForKernelBefore();
}

int Ceiling(int64_t n, int64_t size) { return static_cast<int>((n + size - 1) / size); }

// Chunks of x that different CTAs sum: all, where there is room for their sums.
int ChunksOf(const LoraAddParams& p) {
  const int chunks = Ceiling(p.in_features, kChunk);
  return p.num_tokens * int64_t{chunks} <= p.lora.num_sums ? chunks : 1;
}

// As many CTAs as there may be items, or as run at once: how many items there are only the device
// knows. Of the latter not a multiple of row_parts: a CTA whose items were all of one part would be
// idle where adapters have fewer rows.
unsigned NumCtas(const LoraAddParams& p, const Work& work, int resident) {
  const int64_t items = int64_t{p.num_tokens} * work.items_per_tile;
  if (items <= resident) return static_cast<unsigned>(items);
  const bool is_multiple = work.row_parts > 1 && resident % work.row_parts == 0;
  return static_cast<unsigned>(is_multiple ? resident - 1 : resident);
}

template <typename T>
void Shrink(const LoraAddParams& p, CudaStream& stream) {
  const int chunks = ChunksOf(p);
  const int row_parts = Ceiling(p.in_features, kChunk) <= 4 || chunks == 1 ? 4 : 2;
  const Work work = {
      .items_per_tile = chunks * row_parts, .chunks = chunks, .row_parts = row_parts};
  const auto launch = [&]<int kGroups>() {
    LaunchOverlapped(ShrinkKernel<T, kGroups>, NumCtas(p, work, kShrinkCtas * stream.num_sms()),
                     kShrinkWarps * kWarp, 0, stream.handle(), p, work);
  };
  if (p.lora.tile_tokens == kSmallLoraTile) return launch.template operator()<1>();
  launch.template operator()<4>();
}

template <typename T>
void Expand(const LoraAddParams& p, CudaStream& stream) {
  const auto launch = [&]<int kGroups, int kBlocks>() {
    const Work work = {
        .items_per_tile = Ceiling(p.num_sites * p.out_features, kExpandWarps * kBlocks * kBlock),
        .chunks = ChunksOf(p),
        .row_parts = 1};
    LaunchOverlapped(ExpandKernel<T, kGroups, kBlocks>,
                     NumCtas(p, work, ExpandCtas(kGroups) * stream.num_sms()), kExpandWarps * kWarp,
                     0, stream.handle(), p, work);
  };
  if (p.lora.tile_tokens == kSmallLoraTile) return launch.template operator()<1, 2>();
  launch.template operator()<4, 1>();
}

Status Validate(const LoraAddParams& p) {
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

}  // namespace

Status LoraShrink(const LoraAddParams& p, CudaStream& stream) {
  RETURN_IF_ERROR(Validate(p));
  if (p.num_tokens == 0) return Status::Ok();
  WithHalf(p.dtype, [&]<typename T>(std::type_identity<T>) { Shrink<T>(p, stream); });
  return inflight::cuda::LaunchStatus("lora_shrink");
}

Status LoraExpand(const LoraAddParams& p, CudaStream& stream) {
  RETURN_IF_ERROR(Validate(p));
  if (p.num_tokens == 0) return Status::Ok();
  WithHalf(p.dtype, [&]<typename T>(std::type_identity<T>) { Expand<T>(p, stream); });
  return inflight::cuda::LaunchStatus("lora_expand");
}

}  // namespace inflight::ops::cuda

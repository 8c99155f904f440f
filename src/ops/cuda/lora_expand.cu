// SPDX-License-Identifier: Apache-2.0
// What adapters add to a linear, from x A (lora_tiles.cuh).
#include "base/status_macros.h"
#include "ops/cuda/activate.cuh"
#include "ops/cuda/lora_tiles.cuh"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {
namespace lora {
namespace {

constexpr int kExpandWarps = 4;
// CTAs that run at once on a multiprocessor; large tiles take more registers.
constexpr int ExpandCtas(int groups) { return groups == kLargeLoraTile / kGroup ? 3 : 4; }
constexpr int kBlock = 64;                     // features of a warp at a time, 8 a lane of a column
constexpr int kChunksAtOnce = 8;               // whose sums a thread asks for
constexpr int kSumsStride = kMaxLoraRank + 4;  // 4 more keep the tokens in different banks

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
      for (int begin = 0; begin < chunks; begin += kChunksAtOnce) {
        float values[kChunksAtOnce];
#pragma unroll
        for (int c = 0; c < kChunksAtOnce; ++c)
          values[c] = begin + c < chunks ? from[(begin + c) * next] : 0;
#pragma unroll
        for (int c = 0; c < kChunksAtOnce; ++c)
          if (begin + c < chunks) sum = begin + c == 0 ? values[c] : sum + values[c];
      }
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

// 16 ranks of a part's B from `row` on, or a bias, in the columns of an item of a tile. `part`
// without features: there is no such step.
struct ExpandStep {
  LoraDevicePart part = {};
  int index = 0;      // of the part
  int first = 0;      // of its rows among a token's sums
  int row = 0;        // of rank 0, a bias: unused
  int item = 0;       // of the tile
  int64_t begin = 0;  // of its columns in y
};

// The steps of a CTA's items [item, end) of a tile, in turn; items are `width` columns each.
class ExpandSteps {
 public:
  __device__ ExpandSteps(const LoraAddParams& p, const Parts& parts, int width, int end)
      : p_(p), parts_(parts), width_(width), end_(end) {}

  __device__ ExpandStep FromItem(int item) const {
    for (; item < end_; ++item) {
      const ExpandStep step = FromPart(item, 0, 0);
      if (step.part.num_features > 0) return step;
    }
    return {};
  }
  __device__ ExpandStep Next(const ExpandStep& step) const {
    if (step.row + kRowTile < step.part.rank) {
      ExpandStep next = step;
      next.row += kRowTile;
      return next;
    }
    const ExpandStep next = FromPart(step.item, step.index + 1, step.first + step.part.rank);
    return next.part.num_features > 0 ? next : FromItem(step.item + 1);
  }

 private:
  // The first part from the index-th on that has columns of the item.
  __device__ ExpandStep FromPart(int item, int index, int first) const {
    const int64_t column = int64_t{item} * width_;
#pragma unroll 1
    for (int i = index; i < p_.num_sites * kMaxLoraParts; ++i) {
      if (!parts_.IsThere(i)) continue;
      const LoraDevicePart part = parts_.At(i);
      const int64_t begin = i / kMaxLoraParts * p_.out_features + part.first_feature;
      if (begin < column + width_ && begin + part.num_features > column)
        return {.part = part, .index = i, .first = first, .item = item, .begin = begin};
      first += part.rank;
    }
    return {};
  }

  const LoraAddParams& p_;
  const Parts& parts_;
  const int width_;
  const int end_;
};

// Items [item, end) of a tile, columns of y each, kBlocks times 64 a warp: sums in registers, then
// all of y once.
template <typename T, int kGroups, int kBlocks>
__device__ void ExpandTile(const LoraAddParams& p, const LoraTile& tile, int item, int end,
                           int chunks) {
  constexpr int kTokens = kGroups * kGroup;
  constexpr int kColumns = kBlocks * kBlock;  // of a warp
  constexpr int kWidth = kExpandWarps * kColumns;
  __shared__ float sums[kTokens][kSumsStride];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Parts parts(p, tile.adapter);
  int tokens[kGroups][2];
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int t = 0; t < 2; ++t)
      tokens[group][t] = TokenAt(p.lora, tile, group * kGroup + lane % 4 * 2 + t);
  const auto column_of = [&](const ExpandStep& of) {  // the lane's first
    return int64_t{of.item} * kWidth + warp * kColumns + lane / 4 * kVector;
  };
  uint4 b[kBlocks][4];
  const auto load_b = [&](const ExpandStep& of) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      LoadB(of.part, of.row, column_of(of) + block * kBlock - of.begin, b[block]);
  };
  const ExpandSteps steps(p, parts, kWidth, end);
  ExpandStep step = steps.FromItem(item);
  if (step.part.num_features == 0) return;
  load_b(step);
  WaitForKernelBefore();
  uint4 z[kBlocks][kGroups][2] = {};
  LoadZ(p, tile, tokens, column_of(step), z);
  float c[kBlocks][kGroups][4][4] = {};
  bool is_changed[kBlocks] = {};
  int summed = -1;  // the part whose sums are there
#pragma unroll 1
  while (true) {
    if (step.part.rank == 0) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int64_t at = column_of(step) + block * kBlock - step.begin;
        if (at >= 0 && at < step.part.num_features) AddBias(step.part, at, c[block]);
      }
    } else {
      if (summed != step.index) {
        __syncthreads();  // who reads what was there before
        GatherSums(p, tile, step.part.rank, step.first, chunks, sums);
        __syncthreads();
        summed = step.index;
      }
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (group * kGroup >= tile.num) break;
        const float* const own = &sums[group * kGroup + lane / 4][step.row + lane % 4];
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
          MultiplySums<T>(b[block], own, c[block][group]);
      }
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int64_t at = column_of(step) + block * kBlock - step.begin;
      is_changed[block] |= at >= 0 && at < step.part.num_features;
    }
    const ExpandStep next = steps.Next(step);
    const bool is_more = next.part.num_features > 0;
    if (is_more) load_b(next);  // of a bias nothing
    if (!is_more || next.item != step.item) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          if (group * kGroup + lane % 4 * 2 + t >= tile.num) continue;
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) {
            if (!is_changed[block]) continue;
            const float(&sum)[4][4] = c[block][group];
            AddTo<T>(p, z[block][group][t], tokens[group][t], column_of(step) + block * kBlock,
                     {sum[0][t], sum[0][2 + t], sum[1][t], sum[1][2 + t], sum[2][t], sum[2][2 + t],
                      sum[3][t], sum[3][2 + t]});
          }
        }
      if (!is_more) break;
      LoadZ(p, tile, tokens, column_of(next), z);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        is_changed[block] = false;
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
#pragma unroll
          for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) c[block][group][i][j] = 0;
      }
    }
    step = next;
  }
  __syncthreads();  // before the next tile's sums come here
}

template <typename T, int kGroups, int kBlocks>
__global__ void __launch_bounds__(kExpandWarps* kWarp, ExpandCtas(kGroups))
    ExpandKernel(const __grid_constant__ LoraAddParams p, const __grid_constant__ Work work) {
  LetKernelBehindStart();
  ForEachTile(p.lora, work, [&](const LoraTile& tile, int item, int end) {
    ExpandTile<T, kGroups, kBlocks>(p, tile, item, end, work.chunks);
  });
  WaitForKernelBefore();
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

}  // namespace
}  // namespace lora

Status LoraExpand(const LoraAddParams& p, CudaStream& stream) {
  RETURN_IF_ERROR(lora::Validate(p));
  if (p.num_tokens == 0) return Status::Ok();
  WithHalf(p.dtype, [&]<typename T>(std::type_identity<T>) { lora::Expand<T>(p, stream); });
  return inflight::cuda::LaunchStatus("lora_expand");
}

}  // namespace inflight::ops::cuda

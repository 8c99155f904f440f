// SPDX-License-Identifier: Apache-2.0
// x A of adapters (lora_tiles.cuh).
#include "base/status_macros.h"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/lora_tiles.cuh"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {
namespace lora {
namespace {

constexpr int kShrinkWarps = 8;
constexpr int kSlice = 32;      // features of a multiplication, 8 a lane
constexpr int kSlices = 4;      // of a warp, in a chunk
constexpr int kShrinkCtas = 2;  // of a multiprocessor
static_assert(kShrinkWarps * kSlices * kSlice == kChunk);

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

// Rows of x of a group of tokens in the slices that LoadA loads; zeros likewise.
__device__ void LoadX(const LoraAddParams& p, bool is_token, int token, int64_t feature,
                      uint4 (&x)[kSlices]) {
  const auto* const from = static_cast<const uint16_t*>(p.x) + token * p.in_features + feature;
#pragma unroll
  for (int s = 0; s < kSlices; ++s) {
    const bool is_there = is_token && feature + s * kSlice < p.in_features;
    x[s] = is_there ? *reinterpret_cast<const uint4*>(from + s * kSlice) : uint4{};
  }
}

// c += the slices' products.
template <typename T>
__device__ void MultiplySlices(const uint4 (&a)[kSlices][2], const uint4 (&x)[kSlices],
                               float (&c)[4]) {
#pragma unroll
  for (int s = 0; s < kSlices; ++s) {
    Mma<T>(c, {a[s][0].x, a[s][1].x, a[s][0].y, a[s][1].y}, x[s].x, x[s].y);
    Mma<T>(c, {a[s][0].z, a[s][1].z, a[s][0].w, a[s][1].w}, x[s].z, x[s].w);
  }
}

// 16 rows of a part from `row` on, which are rows [first, first + 16) of a token's sums, over a
// chunk of x. `part.rank` 0: there is no such step.
struct ShrinkStep {
  LoraDevicePart part = {};
  int row = 0;
  int first = 0;
  int chunk = 0;
};

// The steps of a CTA's items [item, end) of a tile, in turn.
class ShrinkSteps {
 public:
  __device__ ShrinkSteps(const LoraAddParams& p, const Work& work, const Parts& parts, int item,
                         int end)
      : p_(p), work_(work), parts_(parts), item_(item), end_(end) {}

  __device__ ShrinkStep First() { return item_ < end_ ? FromItem() : ShrinkStep{}; }

  __device__ ShrinkStep Next(const ShrinkStep& step) {
    if (work_.chunks == 1 && int64_t{step.chunk + 1} * kChunk < p_.in_features) {
      ShrinkStep next = step;
      ++next.chunk;
      return next;
    }
    turn_ += work_.row_parts;
    const ShrinkStep next = AtTurn();
    if (next.part.rank > 0) return next;
    return ++item_ < end_ ? FromItem() : ShrinkStep{};
  }

 private:
  __device__ ShrinkStep FromItem() {
    for (; item_ < end_; ++item_) {
      turn_ = item_ % work_.row_parts;
      const ShrinkStep step = AtTurn();
      if (step.part.rank > 0) return step;
    }
    return {};
  }
  // The turn_-th 16 rows of all parts.
  __device__ ShrinkStep AtTurn() const {
    int turn = turn_;
    int first = 0;
#pragma unroll 1
    for (int i = 0; i < p_.num_sites * kMaxLoraParts; ++i) {
      const int rank = parts_.Rank(i);
      const int num_turns = (rank + kRowTile - 1) / kRowTile;
      if (turn < num_turns)
        return {.part = parts_.At(i),
                .row = turn * kRowTile,
                .first = first + turn * kRowTile,
                .chunk = work_.chunks == 1 ? 0 : item_ / work_.row_parts};
      turn -= num_turns;
      first += rank;
    }
    return {};
  }

  const LoraAddParams& p_;
  const Work& work_;
  const Parts& parts_;
  int item_;
  int end_;
  int turn_ = 0;
};

// Items [item, end) of a tile. Where the work has no chunks a step goes on where that of the chunk
// before ended, else its sums are that chunk's.
template <typename T, int kGroups>
__device__ void ShrinkTile(const LoraAddParams& p, const Work& work, const LoraTile& tile, int item,
                           int end) {
  constexpr int kTokens = kGroups * kGroup;
  constexpr int kThreads = kShrinkWarps * kWarp;
  constexpr int kOwn = (kTokens * kRowTile + kThreads - 1) / kThreads;  // sums of a thread
  // Two in turn, so that one is read while the next is written.
  constexpr int kBuffers = kGroups == 1 ? 2 : 1;
  __shared__ float partial[kBuffers][kShrinkWarps][kTokens][kRowTile + 1];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const Parts parts(p, tile.adapter);
  int tokens[kGroups];
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
    tokens[group] = TokenAt(p.lora, tile, group * kGroup + lane / 4);
  const auto feature_of = [&](const ShrinkStep& step) {
    return int64_t{step.chunk} * kChunk + warp * kSlices * kSlice + lane % 4 * kVector;
  };
  ShrinkSteps steps(p, work, parts, item, end);
  ShrinkStep step = steps.First();
  if (step.part.rank == 0) return;
  uint4 a[kSlices][2];
  uint4 x[kSlices];
  LoadA(step.part, step.row, p.in_features, feature_of(step), a);
  WaitForKernelBefore();
  LoadX(p, lane / 4 < tile.num, tokens[0], feature_of(step), x);
  float total[kOwn] = {};
#pragma unroll 1
  for (int buffer = 0;; buffer = (buffer + 1) % kBuffers) {
    float c[kGroups][4] = {};
    MultiplySlices<T>(a, x, c[0]);
#pragma unroll
    for (int group = 1; group < kGroups; ++group) {
      if (group * kGroup >= tile.num) break;
      LoadX(p, group * kGroup + lane / 4 < tile.num, tokens[group], feature_of(step), x);
      MultiplySlices<T>(a, x, c[group]);
    }
    const ShrinkStep next = steps.Next(step);
    if (next.part.rank > 0) {
      LoadA(next.part, next.row, p.in_features, feature_of(next), a);
      LoadX(p, lane / 4 < tile.num, tokens[0], feature_of(next), x);
    }
    if constexpr (kBuffers == 1) __syncthreads();  // who reads what was there before
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        partial[buffer][warp][group * kGroup + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] =
            c[group][i];
    __syncthreads();
    const bool is_first = work.chunks > 1 || step.chunk == 0;
    const bool is_last = work.chunks > 1 || int64_t{step.chunk + 1} * kChunk >= p.in_features;
    const int64_t sums_of_chunk = work.chunks > 1 ? int64_t{step.chunk} * p.num_tokens : 0;
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const int i = own * kThreads + thread;
      const int token = i / kRowTile;
      const int row = i % kRowTile;
      if (i >= kTokens * kRowTile) break;
      float sum = partial[buffer][0][token][row];
#pragma unroll
      for (int w = 1; w < kShrinkWarps; ++w) sum += partial[buffer][w][token][row];
      total[own] = is_first ? sum : total[own] + sum;
      if (!is_last || token >= tile.num || step.row + row >= step.part.rank) continue;
      p.lora.sums[(sums_of_chunk + tile.first + token) * p.lora.sums_stride + step.first + row] =
          total[own];
    }
    if (next.part.rank == 0) break;
    step = next;
  }
  __syncthreads();  // before the next tile's sums come here
}

template <typename T, int kGroups>
__global__ void __launch_bounds__(kShrinkWarps* kWarp, kShrinkCtas)
    ShrinkKernel(const __grid_constant__ LoraAddParams p, const __grid_constant__ Work work) {
  LetKernelBehindStart();
  ForEachTile(p.lora, work, [&](const LoraTile& tile, int item, int end) {
    ShrinkTile<T, kGroups>(p, work, tile, item, end);
  });
  WaitForKernelBefore();  // whoever is behind this kernel waits for those before it, too
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

}  // namespace
}  // namespace lora

Status LoraShrink(const LoraAddParams& p, CudaStream& stream) {
  RETURN_IF_ERROR(lora::Validate(p));
  if (p.num_tokens == 0) return Status::Ok();
  WithHalf(p.dtype, [&]<typename T>(std::type_identity<T>) { lora::Shrink<T>(p, stream); });
  return inflight::cuda::LaunchStatus("lora_shrink");
}

}  // namespace inflight::ops::cuda

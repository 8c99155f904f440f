// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "executor/cuda/step_adapters.h"
#include "ops/cuda/overlap.cuh"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::LaunchStatus;
using ops::cuda::LaunchOverlapped;
using ops::cuda::LetKernelBehindStart;
using ops::cuda::WaitForKernelBefore;

constexpr int kWarpSize = 32;
constexpr int kFindThreads = scheduler::StepPlan::kMaxRows;
constexpr int kFindWarps = kFindThreads / kWarpSize;
constexpr int kMaxAdapters = AdapterCache::kMaxAdapters;
constexpr int kMaxRows = scheduler::StepPlan::kMaxRows + kFillRows;

__global__ void SetAdapterKernel(int32_t* slot_adapters, int slot, int adapter) {
  slot_adapters[slot] = adapter;
}

// values[i] becomes the sum of those before it; returns the sum of all. By all threads of the CTA.
__device__ int SumsBefore(int (&values)[kMaxAdapters]) {
  __shared__ int of_warps[kMaxAdapters / kWarpSize];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  int sum = 0;
  int own = 0;
  if (thread < kMaxAdapters) {
    own = sum = values[thread];
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const int before = __shfl_up_sync(0xffffffffU, sum, distance);
      if (lane >= distance) sum += before;
    }
    if (lane == kWarpSize - 1) of_warps[thread / kWarpSize] = sum;
  }
  __syncthreads();
  int all = 0;
  for (int w = 0; w < kMaxAdapters / kWarpSize; ++w) {
    if (w < thread / kWarpSize) sum += of_warps[w];
    all += of_warps[w];
  }
  if (thread < kMaxAdapters) values[thread] = sum - own;
  __syncthreads();
  return all;
}

// One CTA: the tokens of each adapter are counted, then each row's get their places, in no order
// among rows of one adapter. Kernels behind this one read tiles before they have waited, so that
// none may start before all is written.
__global__ void __launch_bounds__(kFindThreads) FindTilesKernel(const TileSearch s) {
  __shared__ int counts[kMaxAdapters];
  __shared__ int firsts[kMaxAdapters];
  __shared__ int first_tiles[kMaxAdapters];
  __shared__ int places[kMaxRows];  // a row's among its adapter's; -1 = it has none
  WaitForKernelBefore();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kMaxAdapters) counts[thread] = 0;
  __syncthreads();
  const auto adapter_of = [&](int r) { return s.slot_adapters[s.row_slots[r]] - 1; };
  for (int r = thread; r < s.num_rows; r += kFindThreads) {
    const int adapter = adapter_of(r);
    places[r] = adapter < 0 ? -1 : atomicAdd(&counts[adapter], s.row_ends[r + 1] - s.row_ends[r]);
  }
  __syncthreads();
  if (thread < kMaxAdapters) {
    firsts[thread] = counts[thread];
    first_tiles[thread] = (counts[thread] + s.tile_tokens - 1) / s.tile_tokens;
  }
  __syncthreads();
  SumsBefore(firsts);
  const int num_tiles = SumsBefore(first_tiles);
  const int lane = thread % kWarpSize;
  for (int r = thread / kWarpSize; r < s.num_rows; r += kFindWarps) {
    if (places[r] < 0) continue;
    const int begin = s.row_ends[r];
    const int num = s.row_ends[r + 1] - begin;
    const int place = firsts[adapter_of(r)] + places[r];
    for (int i = lane; i < num; i += kWarpSize) s.order[place + i] = begin + i;
  }
  for (int a = thread / kWarpSize; a < kMaxAdapters; a += kFindWarps)
    for (int i = lane; i * s.tile_tokens < counts[a]; i += kWarpSize)
      s.tiles[first_tiles[a] + i] = {.adapter = a,
                                     .first = firsts[a] + i * s.tile_tokens,
                                     .num = min(s.tile_tokens, counts[a] - i * s.tile_tokens)};
  if (thread == 0) *s.num_tiles = num_tiles;
  __threadfence();
  __syncthreads();
  LetKernelBehindStart();
}

}  // namespace

Status SetAdapter(int32_t* slot_adapters, int slot, int adapter, cudaStream_t stream) {
  SetAdapterKernel<<<1, 1, 0, stream>>>(slot_adapters, slot, adapter);
  return LaunchStatus("set_adapter");
}

Status FindTiles(const TileSearch& search, cudaStream_t stream) {
  LaunchOverlapped(FindTilesKernel, 1, kFindThreads, 0, stream, search);
  return LaunchStatus("find_tiles");
}

}  // namespace inflight::executor::cuda

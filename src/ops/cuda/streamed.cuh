// SPDX-License-Identifier: Apache-2.0
// y = x w^T for up to 64 tokens: weights pass once from memory through wgmma, at the memory's
// speed (docs/reference/kernels.md, "The GPU's kernels").
//
// A CTA has a tile of 128 rows of w, and with the others of its cluster a part of k each. One
// thread copies boxes of 128 bytes of k, of w and of x, into a ring; four warps multiply: rows of w
// are wgmma's 64 rows, twice, tokens its columns. The sums of a cluster are added in the order of
// its CTAs, read from their shared memory, each token by one of them. Two CTAs share a
// multiprocessor: one copies while the other adds. Weights are under way before the kernel before
// has ended (overlap.cuh): while the small kernels between two products run, memory does not wait.
#pragma once

#include "ops/cuda/cache_policy.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/split_sums.cuh"
#include "tensor/cuda_cluster.cuh"

namespace inflight::ops::cuda::streamed {

constexpr int kRows = 128;      // of w, a tile
constexpr int kBoxBytes = 128;  // of k
constexpr int kConsumers = 128;
constexpr int kThreads = kConsumers + 32;
constexpr int kSumStride = SplitSumStride(kRows);
constexpr int kMaxSplits = kMaxSummedSplits;

// Shared memory: a ring of stages, a box of w and one of x each; in its place in the end the sums.
template <int kTokens>
struct Layout {
  static constexpr int kWeightBytes = kRows * kBoxBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kBoxBytes;
  static constexpr int kStages = kTokens == 32 ? 5 : 4;              // leaves room for a second CTA
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // 1024: to align the ring
  static_assert(kTokens * kSumStride * 4 <= kStages * kStageBytes);
};

struct Args {
  int num_steps;   // boxes along k
  int num_splits;  // CTAs of a cluster, among which they are divided
  int m;
  bool copy_w_early;
  bool has_vectors;  // four neighbours of y are stored at once
  ProductOutput out;
};

template <typename T, int kTokens>
__global__ void __launch_bounds__(kThreads, 2)
    Kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
           const Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = Layout<kTokens>;
  constexpr int kElements = kBoxBytes / static_cast<int>(sizeof(T));  // of k, in a box
  extern __shared__ uint8_t shared[];
  __shared__ uint64_t barriers[2 * L::kStages];
  const uint32_t shared_at = inflight::cuda::SharedAddress(shared);
  const uint32_t ring = (shared_at + 1023) / 1024 * 1024;
  float* const sums = reinterpret_cast<float*>(shared + (ring - shared_at));  // [m][kSumStride]
  const int splits = args.num_splits;
  const uint32_t full = inflight::cuda::SharedAddress(barriers);
  const uint32_t empty = full + 8 * L::kStages;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int split = splits == 1 ? 0 : inflight::cuda::ClusterRank();
  const int first_row = static_cast<int>(blockIdx.x) / splits * kRows;
  const int begin = split * args.num_steps / splits;
  const int num_steps = (split + 1) * args.num_steps / splits - begin;

  LetKernelBehindStart();
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      InitBarrier(full + 8 * i, 1);
      InitBarrier(empty + 8 * i, kConsumers / 32);
    }
    FenceBarriers();
  }
  __syncthreads();

  if (warp == kConsumers / 32) {
    if (lane == 0) {
      const uint64_t w_policy = EvictFirst();
      const uint64_t x_policy = EvictLast();
      const auto copy_w = [&](int i) {
        const int slot = i % L::kStages;
        ArriveExpecting(full + 8 * slot, L::kStageBytes);
        CopyBox(ring + slot * L::kStageBytes, &w_map, (begin + i) * kElements, first_row,
                full + 8 * slot, w_policy);
      };
      const auto copy_x = [&](int i) {
        const int slot = i % L::kStages;
        CopyBox(ring + slot * L::kStageBytes + L::kWeightBytes, &x_map, (begin + i) * kElements, 0,
                full + 8 * slot, x_policy);
      };
      const int ahead = min(num_steps, L::kStages);
      if (!args.copy_w_early) WaitForKernelBefore();
      for (int i = 0; i < ahead; ++i) copy_w(i);
      WaitForKernelBefore();
      for (int i = 0; i < ahead; ++i) copy_x(i);
      for (int i = ahead; i < num_steps; ++i) {
        Await(empty + 8 * (i % L::kStages), (i / L::kStages - 1) & 1);
        copy_w(i);
        copy_x(i);
      }
    }
    __syncwarp();
  } else {
    float c[2][kTokens / 2] = {};
    for (int i = 0; i < num_steps; ++i) {
      const int slot = i % L::kStages;
      const uint32_t w = ring + slot * L::kStageBytes;
      const uint32_t x = w + L::kWeightBytes;
      Await(full + 8 * slot, (i / L::kStages) & 1);
      Pin(c[0]);
      Pin(c[1]);
      FenceWgmma();
#pragma unroll
      for (int k = 0; k < kBoxBytes / 32; ++k) {
        Wgmma<T>(c[0], OperandAt(w + 32 * k), OperandAt(x + 32 * k));
        Wgmma<T>(c[1], OperandAt(w + 64 * kBoxBytes + 32 * k), OperandAt(x + 32 * k));
      }
      CommitWgmma();
      Pin(c[0]);
      Pin(c[1]);
      if (i == 0) continue;
      AwaitWgmma<1>();
      if (lane == 0) Arrive(empty + 8 * ((i - 1) % L::kStages));
    }
    AwaitWgmma<0>();
    Pin(c[0]);
    Pin(c[1]);
    SyncThreads(1, kConsumers);  // nobody reads the ring any more
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int row = half * 64 + warp * 16 + lane / 4 + i % 4 / 2 * 8;
        sums[token * kSumStride + row] = c[half][i];
      }
    if (splits == 1) SyncThreads(1, kConsumers);
  }

  if (splits > 1) inflight::cuda::ClusterSync();
  if (warp < kConsumers / 32) {
    WaitForKernelBefore();
    AddSplits<kRows>(args.out, args.has_vectors, sums, split, splits, warp, kConsumers / 32,
                     first_row, 0, args.m);
  }
  if (splits > 1) inflight::cuda::ClusterSync();  // others may still read from here
#endif
}

}  // namespace inflight::ops::cuda::streamed

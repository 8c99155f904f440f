// SPDX-License-Identifier: Apache-2.0
// y = x w^T for weights of int8, int4 or grouped FP8 in the order of tensor cores
// (ops/tensor_core_order.h): codes pass once from memory, become f16 or bf16 in registers, exactly,
// and are wgmma's operand there; x is the other one, in shared memory (docs/reference/kernels.md,
// "The GPU's kernels").
//
// A CTA has a tile of 128 rows of w, and with the others of its cluster a part of k each. One
// thread copies slabs of k into a ring: 64 bytes of each row, x's 128 elements (of int8: 64) in
// boxes of 128 bytes, and the scales and offsets of its groups. Two warpgroups have 64 rows each;
// up to 64 tokens two CTAs share a multiprocessor, so that some widen while the tensor cores work
// for others. Where there are offsets a warp more adds up each group's x, by mma.m16n8k16 with rows
// of ones.
//
// Sums of a group, or of a slab of one, are exact products that the tensor cores add up; they go
// into the float32 sum times the group's scale, as does the offset times the sum of x. Without
// groups the scale of the row comes at the end. Sums of a cluster are added in the order of its
// CTAs (split_sums.cuh).
#pragma once

#include "ops/cuda/cache_policy.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/integer_halves.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_access.cuh"
#include "ops/cuda/skinny.cuh"
#include "ops/cuda/split_sums.cuh"
#include "ops/cuda/streamed_integers_args.h"
#include "tensor/cuda_cluster.cuh"

namespace inflight::ops::cuda::streamed_integers {

// Shared memory: a ring of stages, each with codes, x, scales and offsets and at last the sums of
// x; in its place in the end the sums of the tile.
template <int kBits, int kTokens>
struct Layout {
  static constexpr int kBoxes = SlabElements(kBits) * 2 / kBoxBytes;  // of x
  static constexpr int kCodeBytes = kRows * kSlabBytes;
  static constexpr int kTokenBytes = kBoxes * kTokens * kBoxBytes;

  static constexpr int ScaleBytes(int slab_groups) { return slab_groups * kRows * 4; }
  // What a copy brings, `parts` of scales and offsets.
  static constexpr int CopiedBytes(int slab_groups, int parts) {
    return kCodeBytes + kTokenBytes + parts * ScaleBytes(slab_groups);
  }
};

// The thread that copies.
template <int kBits, int kTokens>
__device__ void CopySlabs(const Maps& maps, const Args& args, uint32_t ring, uint32_t full,
                          uint32_t empty, int first_row, int first_token, int begin, int count,
                          bool has_groups) {
  using L = Layout<kBits, kTokens>;
  const uint64_t w_policy = EvictFirst();
  const uint64_t x_policy = EvictLast();
  const int parts = !has_groups ? 0 : args.has_offsets ? 2 : 1;
  const int scale_bytes = L::ScaleBytes(args.slab_groups);
  const auto copy_w = [&](int i) {
    const int slot = i % args.stages;
    const uint32_t barrier = full + 8 * slot;
    const uint32_t to = ring + slot * args.stage_bytes;
    ArriveExpecting(barrier, L::CopiedBytes(args.slab_groups, parts));
    CopyBox(to, &maps.codes, (begin + i) * kSlabBytes, first_row, barrier, w_policy);
    if (parts == 0) return;
    const int group = (begin + i) * args.slab_groups / args.group_slabs;
    const uint32_t scales = to + L::kCodeBytes + L::kTokenBytes;
    CopyBox(scales, &maps.scales, group * kScalePanelRows, first_row / kScalePanelRows, barrier,
            w_policy);
    if (parts == 2)
      CopyBox(scales + scale_bytes, &maps.offsets, group * kScalePanelRows,
              first_row / kScalePanelRows, barrier, w_policy);
  };
  const auto copy_x = [&](int i) {
    const int slot = i % args.stages;
    const uint32_t to = ring + slot * args.stage_bytes + L::kCodeBytes;
#pragma unroll
    for (int box = 0; box < L::kBoxes; ++box)
      CopyBox(to + box * kTokens * kBoxBytes, &maps.x,
              ((begin + i) * L::kBoxes + box) * (kBoxBytes / 2), first_token, full + 8 * slot,
              x_policy);
  };
  const int ahead = min(count, args.stages);
  for (int i = 0; i < ahead; ++i) copy_w(i);
  WaitForKernelBefore();
  for (int i = 0; i < ahead; ++i) copy_x(i);
  for (int i = ahead; i < count; ++i) {
    Await(empty + 8 * (i % args.stages), (i / args.stages - 1) & 1);
    copy_w(i);
    copy_x(i);
  }
}

// The warp that adds up x, of each token and group of a stage: [kGroups][kTokens].
template <typename T, int kBits, int kTokens, int kGroups>
__device__ void AddUpTokens(const Args& args, uint32_t ring, uint32_t full, uint32_t empty,
                            uint32_t summed, int count) {
  using L = Layout<kBits, kTokens>;
  constexpr uint32_t kOnes = std::is_same_v<T, __half> ? 0x3c003c00U : 0x3f803f80U;
  constexpr int kSteps = SlabElements(kBits) / 16;
  constexpr int kTiles = kTokens / 8;  // all at once, as a product waits for the one before it
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < count; ++i) {
    const int slot = i % args.stages;
    const uint32_t x = ring + slot * args.stage_bytes + L::kCodeBytes;
    const uint32_t sums = x + L::kTokenBytes + 2 * L::ScaleBytes(kGroups) + lane * 8;
    Await(full + 8 * slot, (i / args.stages) & 1);
    float sum[kTiles][4] = {};
#pragma unroll
    for (int pair = 0; pair < kSteps / 2; ++pair) {
      // A token's row of a box has its 16 bytes p at p ^ (row % 8).
      const int piece = (pair % 2 * 4 + lane / 8) ^ lane % 8;
      const uint32_t row = x + pair / 2 * kTokens * kBoxBytes + lane % 8 * kBoxBytes + piece * 16;
      uint32_t pairs[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) LoadMatrices(row + 8 * t * kBoxBytes, pairs[t]);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          Mma<T>(sum[t], kOnes, kOnes, kOnes, kOnes, pairs[t][2 * k], pairs[t][2 * k + 1]);
        const int done = (2 * pair + k + 1) * kGroups;
        if (done % kSteps != 0) continue;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          if (lane < 4)  // of its rows, which are equal, the first
            StoreSharedTwoFloats(sums + ((done / kSteps - 1) * kTokens + 8 * t) * 4, sum[t][0],
                                 sum[t][1]);
#pragma unroll
          for (float& v : sum[t]) v = 0.0F;
        }
      }
    }
    __syncwarp();
    if (lane == 0) {
      Arrive(summed + 8 * slot);
      Arrive(empty + 8 * slot);
    }
  }
}

// A warpgroup's 64 rows. `kGroups` of a slab: 1, 2 or 4, 0 where there are none.
template <typename T, Codes kCodes, int kTokens, int kGroups>
struct Multiplier {
  static constexpr int kBits = BitsOf(kCodes);
  using L = Layout<kBits, kTokens>;
  static constexpr bool kHasGroups = kGroups > 0;
  static constexpr int kNum = kTokens / 2;
  static constexpr int kSlabPairs = SlabElements(kBits) / 32;  // of steps of k
  static constexpr int kGroupSteps = 2 * kSlabPairs / (kHasGroups ? kGroups : 1);
  static constexpr int kBatch = kGroupSteps < 4 ? kGroupSteps : 4;  // steps that begin together

  const Args& args;
  const int lane, row;  // the first of the thread's two rows, in the tile
  float sum[kNum] = {};
  float part[kHasGroups ? kNum : 1] = {};  // of a group

  __device__ explicit Multiplier(const Args& a)
      : args(a),
        lane(static_cast<int>(threadIdx.x) % 32),
        row(static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4) {}

  // The lane's codes of both rows of a stage.
  struct LaneCodes {
    uint4 upper, lower;
  };
  __device__ LaneCodes Load(uint32_t stage) const {
    const uint32_t codes = stage + row * kSlabBytes + lane % 4 * 16;
    return {LoadShared16(codes), LoadShared16(codes + 8 * kSlabBytes)};
  }

  // Adds a stage. `summed` is the barrier of the sums of its x; `meanwhile` runs while the tensor
  // cores work.
  template <typename Meanwhile>
  __device__ void Add(const LaneCodes& codes, uint32_t stage, uint32_t summed, uint32_t parity,
                      const Meanwhile& meanwhile) {
    constexpr int kSteps = 2 * kSlabPairs;
    const uint32_t x = stage + L::kCodeBytes;
    float(&into)[kNum] = Sums();
#pragma unroll
    for (int first = 0; first < kSteps; first += kBatch) {
      uint32_t operands[kBatch][4];
      Widen(codes, first, operands);
      Pin(into);
      FenceWgmma();
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int step = first + k;
        const uint32_t tokens = x + step / 4 * kTokens * kBoxBytes + step % 4 * 32;
        WgmmaOfRegisters<T>(into, operands[k], OperandAt(tokens),
                            !kHasGroups || step % kGroupSteps != 0);
      }
      CommitWgmma();
      Pin(into);
      if (first + kBatch == kSteps) meanwhile();
      // Operands keep their registers until then; of many tokens there are not enough for more.
      if (!kHasGroups || kTokens >= 64) AwaitWgmma<0>();
      if constexpr (kHasGroups)
        if ((first + kBatch) % kGroupSteps == 0)
          EndGroup(stage, first / kGroupSteps, summed, parity);
    }
    Pin(into);
  }

  __device__ float (&Sums())[kNum] {
    if constexpr (kHasGroups)
      return part;
    else
      return sum;
  }

  // Steps [first, first + kBatch) of the two rows, as mma has them.
  __device__ static void Widen(const LaneCodes& codes, int first, uint32_t (&operands)[kBatch][4]) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      uint32_t a[4], b[4];  // of two steps; what nobody takes is not computed
      WidenTwoSteps<T, kCodes>(codes.upper, (first + k) / 2, a);
      WidenTwoSteps<T, kCodes>(codes.lower, (first + k) / 2, b);
      const int half = (first + k) % 2 * 2;
      operands[k][0] = a[half], operands[k][1] = b[half];
      operands[k][2] = a[half + 1], operands[k][3] = b[half + 1];
    }
  }

  // sum += part * scale + sum of x * offset.
  __device__ void EndGroup(uint32_t stage, int group, uint32_t summed, uint32_t parity) {
    AwaitWgmma<0>();
    Pin(part);
    // [panel][slab_groups][64]
    const uint32_t scales =
        stage + L::kCodeBytes + L::kTokenBytes +
        ((row / kScalePanelRows * kGroups + group) * kScalePanelRows + row % kScalePanelRows) * 4;
    const float scale[2] = {LoadSharedFloat(scales), LoadSharedFloat(scales + 32)};
#pragma unroll
    for (int i = 0; i < kNum; ++i) sum[i] = fmaf(part[i], scale[i % 4 / 2], sum[i]);
    if (!args.has_offsets) return;
    const uint32_t offsets = scales + L::ScaleBytes(kGroups);
    const float offset[2] = {LoadSharedFloat(offsets), LoadSharedFloat(offsets + 32)};
    const uint32_t sums = stage + L::kCodeBytes + L::kTokenBytes + 2 * L::ScaleBytes(kGroups) +
                          (group * kTokens + lane % 4 * 2) * 4;
    Await(summed, parity);
#pragma unroll
    for (int i = 0; i < kNum / 4; ++i) {
      const float2 of_x = LoadSharedTwoFloats(sums + 32 * i);
      sum[4 * i] = fmaf(of_x.x, offset[0], sum[4 * i]);
      sum[4 * i + 1] = fmaf(of_x.y, offset[0], sum[4 * i + 1]);
      sum[4 * i + 2] = fmaf(of_x.x, offset[1], sum[4 * i + 2]);
      sum[4 * i + 3] = fmaf(of_x.y, offset[1], sum[4 * i + 3]);
    }
  }

  // Where the tile's sums are put for the cluster.
  __device__ void Store(float* sums, int first_row) const {
    float scale[2] = {1.0F, 1.0F};
    if constexpr (!kHasGroups) {
      scale[0] = args.scales[min(first_row + row, args.out.n - 1)];
      scale[1] = args.scales[min(first_row + row + 8, args.out.n - 1)];
    }
#pragma unroll
    for (int i = 0; i < kNum; ++i) {
      const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
      sums[token * SplitSumStride(kRows) + row + i % 4 / 2 * 8] = sum[i] * scale[i % 4 / 2];
    }
  }
};

template <typename T, Codes kCodes, int kTokens, int kGroups>
__global__ void __launch_bounds__(kThreads, CtasPerSm(kTokens))
    Kernel(const __grid_constant__ Maps maps, const Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kBits = BitsOf(kCodes);
  extern __shared__ uint8_t shared[];
  __shared__ uint64_t barriers[3 * kMaxStages];
  const uint32_t shared_at = inflight::cuda::SharedAddress(shared);
  const uint32_t ring = (shared_at + 1023) / 1024 * 1024;
  float* const sums = reinterpret_cast<float*>(shared + (ring - shared_at));
  const uint32_t full = inflight::cuda::SharedAddress(barriers);
  const uint32_t empty = full + 8 * kMaxStages;
  const uint32_t summed = empty + 8 * kMaxStages;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int splits = args.num_splits;
  const int split = splits == 1 ? 0 : inflight::cuda::ClusterRank();
  const int first_row = static_cast<int>(blockIdx.x) / splits * kRows;
  const int first_token = static_cast<int>(blockIdx.y) * kTokens;
  const int begin = split * args.num_slabs / splits;
  const int count = (split + 1) * args.num_slabs / splits - begin;
  constexpr int kConsumerWarps = kConsumers / 32;

  LetKernelBehindStart();
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.stages; ++i) {
      InitBarrier(full + 8 * i, 1);
      InitBarrier(empty + 8 * i, kConsumerWarps + static_cast<int>(args.has_offsets));
      InitBarrier(summed + 8 * i, 1);
    }
    FenceBarriers();
  }
  __syncthreads();

  if (warp == kConsumerWarps) {
    if (threadIdx.x % 32 == 0)
      CopySlabs<kBits, kTokens>(maps, args, ring, full, empty, first_row, first_token, begin, count,
                                kGroups > 0);
    __syncwarp();
  } else if (warp > kConsumerWarps) {
    if constexpr (kGroups > 0 && kCodes != Codes::kFp8)
      if (args.has_offsets)
        AddUpTokens<T, kBits, kTokens, kGroups>(args, ring, full, empty, summed, count);
  } else {
    Multiplier<T, kCodes, kTokens, kGroups> multiplier(args);
    constexpr bool kLoadsAhead = kTokens < 64;  // registers allow it
    const auto stage_of = [&](int i) { return ring + i % args.stages * args.stage_bytes; };
    typename Multiplier<T, kCodes, kTokens, kGroups>::LaneCodes codes = {};
    const auto load = [&](int i) {
      if (i >= count) return;
      Await(full + 8 * (i % args.stages), (i / args.stages) & 1);
      codes = multiplier.Load(stage_of(i));
    };
    if (kLoadsAhead) load(0);
    for (int i = 0; i < count; ++i) {
      const int slot = i % args.stages;
      if (!kLoadsAhead) load(i);
      multiplier.Add(codes, stage_of(i), summed + 8 * slot, (i / args.stages) & 1, [&] {
        if (kLoadsAhead) load(i + 1);
      });
      if constexpr (kGroups > 0) __syncwarp();  // all lanes have read the scales, and sums of x
      if (threadIdx.x % 32 == 0) Arrive(empty + 8 * slot);
    }
    SyncThreads(1, kConsumers);  // nobody reads the ring any more
    multiplier.Store(sums, first_row);
    if (splits == 1) SyncThreads(1, kConsumers);
  }

  if (splits > 1) inflight::cuda::ClusterSync();
  if (warp < kConsumerWarps) {
    WaitForKernelBefore();
    AddSplits<kRows>(args.out, args.has_vectors, sums, split, splits, warp, kConsumerWarps,
                     first_row, first_token, min(kTokens, args.m - first_token));
  }
  if (splits > 1) inflight::cuda::ClusterSync();  // others may still read from here
#endif
}

}  // namespace inflight::ops::cuda::streamed_integers

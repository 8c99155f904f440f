// SPDX-License-Identifier: Apache-2.0
// y = x w^T for at most 16 tokens and weights of int8, int4 or grouped FP8 in the order of tensor
// cores (ops/tensor_core_order.h): codes pass once from memory and become f16 or bf16 in registers,
// exactly, on their way to mma.m16n8k16, whose 16-row operand they are; tokens are its 8 columns.
//
// Of the 8 warps of a CTA `split` have a tile and take parts of k in turns; all CTAs have a tile
// before one has a second. A warp copies slabs of 64 bytes of each row into its part of a ring, a
// lane the 16 bytes that it multiplies. x is copied beside the weights, or, where a CTA has several
// tiles and there is room, once as a whole. Of up to 8 tokens two CTAs share a multiprocessor: one
// copies while the other adds.
//
// Sums of a group, or of a slab of one, are exact products of codes and x, added up by the tensor
// cores, and go into the float32 sum times the group's scale; the offset goes there times the
// group's sum of x, which is one product more with rows of ones. It also takes away what int4 codes
// in bf16 have too much there (RaiseWord). Without groups the scale of the row comes at the end. No
// sum crosses CTAs and the order over k depends on the cut alone: results are the same on every run
// and for every number of tokens up to 8 (and from 9 to 16).
#pragma once

#include <algorithm>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/cuda/cache_policy.cuh"
#include "ops/cuda/integer_halves.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_access.cuh"
#include "ops/cuda/shared_memory_limit.h"
#include "ops/cuda/skinny.cuh"
#include "ops/cuda/skinny_integers_args.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda::skinny_integers {

// Four rows' scales to shared memory.
__device__ inline void CopyFour(uint32_t to, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

template <typename T, Codes kCodes, int kRowTiles, int kTokenTiles, bool kHasGroups>
struct Product {
  static constexpr int kBits = BitsOf(kCodes);
  static constexpr int kSlabs = SlabsPerStage(kRowTiles);
  static constexpr int kSlabK = SlabElements(kBits);
  static constexpr int kStageK = kSlabs * kSlabK;
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kWeightBytes = kSlabs * kRows * kSlabBytes;
  static constexpr int kScales = kSlabs * kRows;     // times args.slab_groups
  static constexpr int kSteps = kBits == 4 ? 2 : 1;  // of k, in a word of a lane
  static constexpr int kSlabSteps = 4 * kSteps;
  // Products with 136 too much, which the sum of x takes away again (integer_halves.cuh).
  static constexpr bool kRaises =
      kHasGroups && kCodes == Codes::kInt4 && std::is_same_v<T, __nv_bfloat16>;
  // Sums of odd steps of their own where few products are independent of each other, which each
  // wait for the one before; and all of a slab's x at once where there are registers.
  static constexpr int kChains = kRowTiles * kTokenTiles <= 2 ? 2 : 1;
  static constexpr int kPairs = kTokenTiles == 1 ? kSlabSteps / 2 : 1;

  const Args& args;
  const int lane, warp, g, quarter;
  const int part, group;  // which of the warps of a tile, and of which of the CTA's tiles
  const uint32_t ring, resident_x;
  const uint64_t w_policy, x_policy;
  int copy_tile, copy_step;
  const uint8_t* from[2 * kRowTiles];  // what the lane copies next, of its rows
  float sum[kChains][kRowTiles][kTokenTiles][4] = {};

  __device__ Product(const Args& a, uint32_t shared)
      : args(a),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        g(lane / 4),
        quarter(lane % 4),
        part(warp % a.split),
        group(warp / a.split),
        ring(shared + static_cast<uint32_t>(warp * a.stages * a.stage_bytes)),
        resident_x(shared + static_cast<uint32_t>(kWarps * a.stages * a.stage_bytes)),
        w_policy(EvictFirst()),
        x_policy(EvictLast()) {}

  __device__ int FirstK(int step) const { return (step * args.split + part) * kStageK; }
  __device__ int ScaleBytes() const { return kHasGroups ? kScales * args.slab_groups * 4 : 0; }
  // Of the tokens in a stage.
  __device__ int TokensAt() const {
    return kWeightBytes + (args.offsets == nullptr ? 1 : 2) * ScaleBytes();
  }

  // The next stage that is copied: a step of a tile.
  __device__ void BeginTile(int tile) {
    copy_tile = tile;
    copy_step = 0;
#pragma unroll
    for (int j = 0; j < 2 * kRowTiles; ++j) {
      // Rows behind the last are not stored.
      const int row = min(tile * kRows + g + 8 * j, args.out.n - 1);
      from[j] = args.w + row * args.row_bytes + part * kSlabs * kSlabBytes + quarter * 16;
    }
  }

  __device__ void CopyWeights(int slot) {
    const int first_k = FirstK(copy_step);
    const uint32_t stage = ring + slot * args.stage_bytes;
    const uint32_t to = PerLane(stage + g * kSlabBytes + quarter * 16);
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
      const bool is_inside = first_k + s * kSlabK + quarter * (kSlabK / 4) < args.k;
#pragma unroll
      for (int j = 0; j < 2 * kRowTiles; ++j)
        CopyAsync(to + (s * 2 * kRowTiles + j) * 8 * kSlabBytes,
                  is_inside ? from[j] + s * kSlabBytes : args.w, is_inside, w_policy);
    }
#pragma unroll
    for (int j = 0; j < 2 * kRowTiles; ++j) from[j] += args.split * kSlabs * kSlabBytes;
    if constexpr (kHasGroups) CopyScales(stage + kWeightBytes, copy_tile, first_k);
  }

  // [slab][slab_groups][row], offsets behind scales.
  __device__ void CopyScales(uint32_t to, int tile, int first_k) const {
    constexpr int kFours = kRows / 4;
    const int groups = args.slab_groups;
    for (int i = lane; i < kSlabs * groups * kFours; i += 32) {
      const int row = min(tile * kRows + i % kFours * 4, args.out.n - 4);
      const int of_stage = i / kFours;  // slab * groups + group, of which there are 1, 2, 4 or 8
      const int slab = first_k / kSlabK + (of_stage >> __popc(groups - 1));
      if (slab * kSlabK >= args.k) continue;
      const int group = args.group_slabs == 0 ? slab * groups + (of_stage & (groups - 1))
                                              : slab / args.group_slabs;
      const int64_t at =
          (int64_t{row / kScalePanelRows} * args.num_groups + group) * kScalePanelRows +
          row % kScalePanelRows;
      CopyFour(to + i * 16, args.scales + at);
      if (args.offsets != nullptr) CopyFour(to + ScaleBytes() + i * 16, args.offsets + at);
    }
  }

  __device__ void CopyTokens(int slot) const {
    constexpr int kPieces = kStageK / 8;  // of 16 bytes, of a token
    const int first_k = FirstK(copy_step);
    const uint32_t to = PerLane(ring + slot * args.stage_bytes + TokensAt());
    for (int i = lane; i < args.m * kPieces; i += 32) {
      const int token = i / kPieces;
      const int k = first_k + i % kPieces * 8;
      const bool is_inside = k < args.k;
      CopyAsync(to + token * args.x_stride + i % kPieces * 16,
                args.x + (int64_t{token} * args.k + (is_inside ? k : 0)) * 2, is_inside, x_policy);
    }
  }

  // x as a whole, by all threads, with zeros up to the end of its last slab.
  __device__ void LoadResidentTokens() const {
    const int pieces = (args.k + kSlabK - 1) / kSlabK * (kSlabK / 8);
    LoadPieces(args.m * pieces, static_cast<int>(threadIdx.x), kThreads, [&](int i) {
      const int token = i / pieces;
      const int piece = i % pieces;
      return Piece{resident_x + token * args.x_stride + piece * 16, token, piece * 8};
    });
    __syncthreads();
  }

  // What `copies` stages that were begun need of x, by ordinary loads: groups of copies end in
  // order, and those of the weights do not wait for x.
  __device__ void LoadFirstTokens(int copies, int num_steps) const {
    constexpr int kPieces = kStageK / 8;
    const uint32_t to = ring + TokensAt();
    LoadPieces(copies * args.m * kPieces, lane, 32, [&](int i) {
      const int piece = i % kPieces;
      const int token = i / kPieces % args.m;
      const int slot = i / kPieces / args.m;
      return Piece{to + slot * args.stage_bytes + token * args.x_stride + piece * 16, token,
                   FirstK(slot % num_steps) + piece * 8};
    });
  }

  struct Piece {
    uint32_t to;
    int token, k;
  };
  template <typename Place>
  __device__ void LoadPieces(int count, int first, int step, const Place& place) const {
    constexpr int kBatch = 4;  // loads in flight
    for (int begin = first; begin < count; begin += kBatch * step) {
      uint4 v[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        v[i] = make_uint4(0, 0, 0, 0);
        if (begin + i * step >= count) continue;
        const Piece piece = place(begin + i * step);
        if (piece.k < args.k)
          v[i] = __ldcg(reinterpret_cast<const uint4*>(
              args.x + (int64_t{piece.token} * args.k + piece.k) * 2));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (begin + i * step < count) StoreShared(place(begin + i * step).to, v[i]);
    }
  }

  // Adds what a stage has of step `step` to the sums.
  __device__ void Multiply(int slot, int step) {
    const int first_k = FirstK(step);
    const uint32_t stage = ring + slot * args.stage_bytes;
    const uint32_t w_at = stage + g * kSlabBytes + quarter * 16;
    const uint32_t tokens = args.is_x_resident ? resident_x + first_k * 2 : stage + TokensAt();
    uint32_t x_at[kTokenTiles];  // matrix lane / 8 of two steps: its row of token lane % 8
    // Columns behind the last token are not stored: they may be its own once more.
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
      x_at[t] = tokens + min(lane % 8 + 8 * t, args.m - 1) * args.x_stride + lane / 8 * 16;
    uint4 upper[kSlabs][kRowTiles], lower[kSlabs][kRowTiles];  // rows g, g + 8
#pragma unroll
    for (int s = 0; s < kSlabs; ++s)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        upper[s][r] = LoadShared16(w_at + (s * kRowTiles + r) * 16 * kSlabBytes);
        lower[s][r] = LoadShared16(w_at + ((s * kRowTiles + r) * 16 + 8) * kSlabBytes);
      }
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
      if (first_k + s * kSlabK >= args.k) break;
      uint32_t x[kPairs][kTokenTiles][4];
      const auto load_x = [&](int pair) {
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
          LoadMatrices(x_at[t] + s * kSlabK * 2 + pair * 64, x[pair % kPairs][t]);
      };
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) load_x(pair);
      float of_group[kChains][kRowTiles][kTokenTiles][4] = {};
      float sum_of_x[kTokenTiles][4] = {};
      auto& into = Sums(of_group);
#pragma unroll
      for (int pair = 0; pair < kSlabSteps / 2; ++pair) {  // of steps
        if (pair >= kPairs) load_x(pair);
        uint32_t a[kRowTiles][4], b[kRowTiles][4];  // of rows g and g + 8: pairs of two steps
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          Widen(upper[s][r], pair, a[r]);
          Widen(lower[s][r], pair, b[r]);
        }
#pragma unroll
        for (int k = 0; k < 2; ++k) {
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) {
            const uint32_t(&x_of)[4] = x[pair % kPairs][t];
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r)
              Mma<T>(into[k % kChains][r][t], a[r][2 * k], b[r][2 * k], a[r][2 * k + 1],
                     b[r][2 * k + 1], x_of[2 * k], x_of[2 * k + 1]);
            constexpr uint32_t kOnes = std::is_same_v<T, __half> ? 0x3c003c00U : 0x3f803f80U;
            if (kHasGroups && (kRaises || args.offsets != nullptr))
              Mma<T>(sum_of_x[t], kOnes, kOnes, kOnes, kOnes, x_of[2 * k], x_of[2 * k + 1]);
          }
          if constexpr (kHasGroups) {
            const int done = (2 * pair + k + 1) * args.slab_groups;
            if (done % kSlabSteps == 0)  // the group, or the slab, ends with the step
              AddGroup(stage + kWeightBytes, s * args.slab_groups + done / kSlabSteps - 1, of_group,
                       sum_of_x);
          }
        }
      }
    }
  }

  using SumsOfTile = float[kChains][kRowTiles][kTokenTiles][4];
  // What products are added to: of a group, or of all k.
  __device__ SumsOfTile& Sums(SumsOfTile& of_group) {
    if constexpr (kHasGroups)
      return of_group;
    else
      return sum;
  }
  __device__ static void Widen(const uint4& codes, int pair, uint32_t (&pairs)[4]) {
    if constexpr (kRaises)
      RaiseWord(WordOf(codes, pair), pairs);
    else
      WidenTwoSteps<T, kCodes>(codes, pair, pairs);
  }

  // sum += of_group * scale + sum_of_x * offset; the two are 0 then. `group_of_stage` counts those
  // of a stage.
  __device__ void AddGroup(uint32_t scales, int group_of_stage, SumsOfTile& of_group,
                           float (&sum_of_x)[kTokenTiles][4]) {
    const uint32_t from = scales + (group_of_stage * kRows + g) * 4;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t at = from + (16 * r + 8 * half) * 4;
        const float scale = LoadSharedFloat(at);
        const float offset = args.offsets == nullptr ? 0.0F : LoadSharedFloat(at + ScaleBytes());
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float whole = of_group[0][r][t][i];
            if constexpr (kChains == 2) whole += of_group[1][r][t][i];
            if constexpr (kRaises) whole = fmaf(sum_of_x[t][i], -kRaisedBy, whole);
            sum[0][r][t][i] = fmaf(whole, scale, sum[0][r][t][i]);
            if (args.offsets != nullptr)
              sum[0][r][t][i] = fmaf(sum_of_x[t][i], offset, sum[0][r][t][i]);
#pragma unroll
            for (int c = 0; c < kChains; ++c) of_group[c][r][t][i] = 0.0F;
          }
      }
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum_of_x[t][i] = 0.0F;
  }

  // Of the warps of a tile.
  __device__ void AwaitTile() const {
    if (args.split == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(32 * args.split) : "memory");
  }

  // The tile is complete: its warps' parts of k are added in their order.
  __device__ void Finish(int tile, float* sums /* [kWarps][m][kRows + 4] */) {
    constexpr int kStride = SumStride(kRowTiles);
    const int m = args.m;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = 8 * t + quarter * 2 + i % 2;
          float whole = sum[0][r][t][i];
          if constexpr (kChains == 2 && !kHasGroups) whole += sum[1][r][t][i];
          if (token < m) sums[(warp * m + token) * kStride + 16 * r + g + i / 2 * 8] = whole;
#pragma unroll
          for (int c = 0; c < kChains; ++c) sum[c][r][t][i] = 0.0F;
        }
    AwaitTile();
    const int first_warp = group * args.split;
    for (int i = 32 * part + lane; i < m * kRows; i += 32 * args.split) {
      const int token = i / kRows;
      const int row = tile * kRows + i % kRows;
      float total = 0.0F;
      for (int w = first_warp; w < first_warp + args.split; ++w)
        total += sums[(w * m + token) * kStride + i % kRows];
      if (row >= args.out.n) continue;
      if constexpr (!kHasGroups) total *= args.scales[row];
      StoreProduct(args.out, token, row, total);
    }
    AwaitTile();
  }
};

template <typename T, Codes kCodes, int kRowTiles, int kTokenTiles, bool kHasGroups>
__global__ void __launch_bounds__(kThreads, 2) Kernel(const Args args) {
  using P = Product<T, kCodes, kRowTiles, kTokenTiles, kHasGroups>;
  extern __shared__ __align__(128) uint8_t shared[];
  P product(args, SharedAddress(shared));
  auto* const sums = reinterpret_cast<float*>(shared + args.sums_at);
  const int stages = args.stages;
  const int turn_k = args.split * P::kStageK;
  const int num_steps = (args.k + turn_k - 1) / turn_k;
  const int first_tile = static_cast<int>(blockIdx.x + gridDim.x * product.group);
  const int tile_step = static_cast<int>(gridDim.x) * (kWarps / args.split);
  const int num_turns = first_tile >= args.num_tiles
                            ? 0
                            : num_steps * ((args.num_tiles - first_tile - 1) / tile_step + 1);

  LetKernelBehindStart();

  int copies = 0;  // of num_turns, that were started
  product.BeginTile(first_tile);
  const auto advance = [&] {
    ++copies;
    if (++product.copy_step == num_steps) product.BeginTile(product.copy_tile + tile_step);
  };

  // Weights are under way while the kernel before still computes x.
  for (int slot = 0; slot < stages; ++slot) {
    if (copies < num_turns) {
      product.CopyWeights(slot);
      advance();
    }
    CommitCopies();
  }
  WaitForKernelBefore();
  if (args.is_x_resident)
    product.LoadResidentTokens();
  else
    product.LoadFirstTokens(copies, num_steps);

  int slot = 0;
  int step = 0;
  int tile = first_tile;
  for (int turn = 0; turn < num_turns; ++turn) {
    AwaitCopies(stages - 1);
    __syncwarp();
    product.Multiply(slot, step);
    __syncwarp();
    if (copies < num_turns) {
      product.CopyWeights(slot);
      if (!args.is_x_resident) product.CopyTokens(slot);
      advance();
    }
    CommitCopies();
    if (++slot == stages) slot = 0;
    if (++step < num_steps) continue;
    step = 0;
    product.Finish(tile, sums);
    tile += tile_step;
  }
}

template <typename T, Codes kCodes, int kRowTiles, int kTokenTiles, bool kHasGroups>
Status Launch(const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  const auto kernel = Kernel<T, kCodes, kRowTiles, kTokenTiles, kHasGroups>;
  const auto limit = static_cast<int>(stream.gpu().max_shared_bytes_per_block);
  static SharedMemoryLimit shared_memory;
  RETURN_IF_ERROR(shared_memory.Raise(kernel, limit, stream));
  LaunchAttributes attributes(plan.overlap && CanOverlap());
  // One CTA each, as in skinny_mma.cu, takes more than half of a multiprocessor's shared memory.
  const cudaLaunchConfig_t config = {
      .gridDim = dim3(static_cast<unsigned>(plan.num_ctas)),
      .blockDim = dim3(kThreads),
      .dynamicSmemBytes = static_cast<size_t>(
          plan.ctas_per_sm == 2 ? plan.shared_bytes : std::max(plan.shared_bytes, limit / 2 + 1)),
      .stream = stream.handle(),
      .attrs = attributes.list,
      .numAttrs = attributes.count};
  return inflight::cuda::ToStatus(cudaLaunchKernelEx(&config, kernel, args), "skinny_integers");
}

template <typename T, Codes kCodes, int kRowTiles>
Status Launch(const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  if constexpr (kCodes != Codes::kFp8)  // which has groups
    if (args.group_size == 0)
      return args.m > 8 ? Launch<T, kCodes, kRowTiles, 2, false>(args, plan, stream)
                        : Launch<T, kCodes, kRowTiles, 1, false>(args, plan, stream);
  return args.m > 8 ? Launch<T, kCodes, kRowTiles, 2, true>(args, plan, stream)
                    : Launch<T, kCodes, kRowTiles, 1, true>(args, plan, stream);
}

template <typename T, Codes kCodes>
Status LaunchTiles(const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  if (plan.row_tiles == 1) return Launch<T, kCodes, 1>(args, plan, stream);
  if (plan.row_tiles == 2) return Launch<T, kCodes, 2>(args, plan, stream);
  return Launch<T, kCodes, 3>(args, plan, stream);
}

template <Codes kCodes>
Status LaunchBits(const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  return plan.dtype == DType::kF16 ? LaunchTiles<__half, kCodes>(args, plan, stream)
                                   : LaunchTiles<__nv_bfloat16, kCodes>(args, plan, stream);
}

}  // namespace inflight::ops::cuda::skinny_integers

// SPDX-License-Identifier: Apache-2.0
// y = x w^T for at most 16 tokens: weights pass once from memory through the tensor cores, at the
// memory's speed (docs/reference/kernels.md, "The GPU's kernels").
//
// Rows of w are the 16-row operand of mma.m16n8k16, tokens its 8 columns: few tokens waste columns,
// not bytes of weights. The 8 warps of a CTA split k in turns of 64 to 256 bytes. Each lane copies
// (cp.async) into its own corner of shared memory what it will itself feed to the tensor core: 16
// bytes of row g and 16 of row g + 8, and the same 16 bytes along k of token g. A dot product does
// not care which k comes first, so such a pair holds two or four steps of k and needs no shuffle,
// and a lane that reads only its own copies needs no barrier. e4m3 becomes f16 in registers,
// exactly.
//
// No sum crosses CTAs and the order over k depends on the cut alone: results are the same on every
// run and for every number of tokens up to 8 (and from 9 to 16).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/cache_policy.cuh"
#include "ops/cuda/fp8_halves.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_access.cuh"
#include "ops/cuda/shared_memory_limit.h"
#include "ops/cuda/skinny.cuh"
#include "ops/cuda/skinny.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kSlabBytes = 64;  // of a row, by the 4 lanes of a quad
constexpr int kMaxStages = 8;
constexpr int kMaxTokens = 16;

struct MmaArgs {
  const uint8_t* x;   // [m, row_bytes]
  const uint8_t* w;   // [n, row_bytes]
  int64_t row_bytes;  // of x and w: k elements
  int m;
  int num_tiles;  // of kRowTiles * 16 rows
  int stages;
  bool copy_w_early;
  ProductOutput out;
};

// Bytes that a warp copies per stage: about 4 KiB of weights.
constexpr int SlabsPerStage(int row_tiles) { return 4 / row_tiles; }
constexpr int StageWeightBytes(int row_tiles) {
  return SlabsPerStage(row_tiles) * row_tiles * 16 * kSlabBytes;
}
constexpr int StageBytes(int row_tiles, int m) {
  return StageWeightBytes(row_tiles) + SlabsPerStage(row_tiles) * m * kSlabBytes;
}
// Sums of the warps: [kWarps][m][rows + 4]; 4 more keep the writes of a warp in different banks.
constexpr int SumStride(int row_tiles) { return 16 * row_tiles + 4; }
constexpr int SharedBytes(int row_tiles, int stages, int m) {
  return kWarps * stages * StageBytes(row_tiles, m) + kWarps * m * SumStride(row_tiles) * 4;
}

// Four e4m3 as four f16, in order.
__device__ inline uint2 ToHalves(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  uint2 halves;
  asm("{\n.reg .b16 lo, hi;\nmov.b32 {lo, hi}, %2;\ncvt.rn.f16x2.e4m3x2 %0, lo;\n"
      "cvt.rn.f16x2.e4m3x2 %1, hi;\n}"
      : "=r"(halves.x), "=r"(halves.y)
      : "r"(codes));
  return halves;
#else
  return {HalvesOfFp8(codes), HalvesOfFp8(codes >> 16)};
#endif
}

// 16 bytes along k as operands of mma: pairs of 32-bit registers, one pair per step of 16 k.
template <typename T>
struct Operand {
  static constexpr int kSteps = std::is_same_v<T, __nv_fp8_e4m3> ? 4 : 2;
  uint32_t lo[kSteps], hi[kSteps];

  __device__ explicit Operand(uint4 v) {
    if constexpr (kSteps == 2) {
      lo[0] = v.x, hi[0] = v.y, lo[1] = v.z, hi[1] = v.w;
    } else {
      const uint32_t words[] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const uint2 halves = ToHalves(words[i]);
        lo[i] = halves.x, hi[i] = halves.y;
      }
    }
  }
};

template <typename T, int kRowTiles, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, 2) SkinnyMmaKernel(const MmaArgs args) {
  constexpr int kSlabs = SlabsPerStage(kRowTiles);
  constexpr int kRows = 16 * kRowTiles;
  constexpr int kTurnBytes = kWarps * kSlabs * kSlabBytes;  // of a row, by the 8 warps
  extern __shared__ __align__(128) uint8_t shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int stages = args.stages;
  const int m = args.m;
  const int num_steps = static_cast<int>((args.row_bytes + kTurnBytes - 1) / kTurnBytes);
  const int num_turns =
      num_steps *
      ((args.num_tiles - static_cast<int>(blockIdx.x) - 1) / static_cast<int>(gridDim.x) + 1);
  const int lane_k = warp * kSlabs * kSlabBytes + lane % 4 * 16;
  const int stage_bytes = StageBytes(kRowTiles, m);
  const uint32_t ring = SharedAddress(shared) + static_cast<uint32_t>(warp * stages * stage_bytes);
  const uint32_t w_at = ring + lane * 16;
  const uint32_t x_at = ring + StageWeightBytes(kRowTiles) + lane * 16;  // [slab][token][4 lanes]
  const uint64_t w_policy = EvictFirst();
  const uint64_t x_policy = EvictLast();

  LetKernelBehindStart();

  const auto CopyWeights = [&](int slot, int tile, int step) {
    const int first = tile * kRows + g;
    const uint32_t to = PerLane(w_at + slot * stage_bytes);
#pragma unroll
    for (int j = 0; j < 2 * kRowTiles; ++j) {
      const int row = min(first + 8 * j, args.out.n - 1);  // rows behind the last are not stored
      const uint8_t* from = args.w + row * args.row_bytes;
#pragma unroll
      for (int s = 0; s < kSlabs; ++s) {
        const int64_t k = int64_t{step} * kTurnBytes + lane_k + s * kSlabBytes;
        const bool is_inside = k < args.row_bytes;
        CopyAsync(to + (s * 2 * kRowTiles + j) * 512, from + (is_inside ? k : 0), is_inside,
                  w_policy);
      }
    }
  };
  const auto CopyTokens = [&](int slot, int step) {
    const uint32_t to = PerLane(x_at + slot * stage_bytes);
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const int token = g + 8 * i;
        const int64_t k = int64_t{step} * kTurnBytes + lane_k + s * kSlabBytes;
        const bool is_inside = k < args.row_bytes;
        if (token < m)
          CopyAsync(to + (s * m + 8 * i) * kSlabBytes,
                    args.x + token * args.row_bytes + (is_inside ? k : 0), is_inside, x_policy);
      }
    }
  };

  // Where the next copy is: `copies` of num_turns were started.
  int copies = 0;
  int copy_tile = static_cast<int>(blockIdx.x);
  int copy_step = 0;
  const auto Advance = [&] {
    ++copies;
    if (++copy_step == num_steps) {
      copy_step = 0;
      copy_tile += static_cast<int>(gridDim.x);
    }
  };

  // Weights may be under way while the kernel before still computes x. Groups of copies end in
  // order, so x of these stages does not join them: it comes by ordinary loads.
  if (!args.copy_w_early) WaitForKernelBefore();
  for (int slot = 0; slot < stages; ++slot) {
    if (copies < num_turns) {
      CopyWeights(slot, copy_tile, copy_step);
      Advance();
    }
    CommitCopies();
  }
  if (args.copy_w_early) {
    // One stage more as far as L2. Further ones would hold up what the kernel before still reads.
    const int64_t k = int64_t{copy_step} * kTurnBytes + warp * kSlabs * kSlabBytes;
    for (int r = lane; r < kRows; r += 32) {
      const int row = copy_tile * kRows + r;
      if (copies < num_turns && row < args.out.n && k < args.row_bytes)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(args.w + row * args.row_bytes + k));
    }
    WaitForKernelBefore();
  }
  constexpr int kBatch = 8;  // loads in flight
  constexpr int kPerStage = kSlabs * kTokenTiles;
  for (int begin = 0; begin < copies * kPerStage; begin += kBatch) {
    uint4 v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int slot = (begin + i) / kPerStage;
      const int s = (begin + i) / kTokenTiles % kSlabs;
      const int token = g + (begin + i) % kTokenTiles * 8;
      const int64_t k = int64_t{slot % num_steps} * kTurnBytes + lane_k + s * kSlabBytes;
      v[i] = make_uint4(0, 0, 0, 0);
      if (slot < copies && token < m && k < args.row_bytes)
        v[i] = __ldcg(reinterpret_cast<const uint4*>(args.x + token * args.row_bytes + k));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int slot = (begin + i) / kPerStage;
      const int s = (begin + i) / kTokenTiles % kSlabs;
      const int first_token = (begin + i) % kTokenTiles * 8;
      if (slot < copies && g + first_token < m)
        StoreShared(x_at + slot * stage_bytes + (s * m + first_token) * kSlabBytes, v[i]);
    }
  }

  float* const sums =
      reinterpret_cast<float*>(shared + kWarps * stages * stage_bytes);  // [kWarps][m][kRows + 4]
  constexpr int kStride = SumStride(kRowTiles);
  float sum[kRowTiles][kTokenTiles][4] = {};
  int slot = 0;
  int step = 0;
  int tile = static_cast<int>(blockIdx.x);
  for (int turn = 0; turn < num_turns; ++turn) {
    AwaitCopies(stages - 1);
#pragma unroll
    for (int s = 0; s < kSlabs; ++s) {
      uint4 x[kTokenTiles];
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        x[i] = make_uint4(0, 0, 0, 0);
        if (g + 8 * i < m)
          x[i] = LoadShared16(x_at + slot * stage_bytes + (s * m + 8 * i) * kSlabBytes);
      }
      uint4 w[2 * kRowTiles];
#pragma unroll
      for (int j = 0; j < 2 * kRowTiles; ++j)
        w[j] = LoadShared16(w_at + slot * stage_bytes + (s * 2 * kRowTiles + j) * 512);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const Operand<T> upper(w[2 * r]);      // rows g
        const Operand<T> lower(w[2 * r + 1]);  // rows g + 8
#pragma unroll
        for (int i = 0; i < kTokenTiles; ++i) {
          const Operand<T> tokens(x[i]);
#pragma unroll
          for (int k = 0; k < Operand<T>::kSteps; ++k)
            Mma<T>(sum[r][i], upper.lo[k], lower.lo[k], upper.hi[k], lower.hi[k], tokens.lo[k],
                   tokens.hi[k]);
        }
      }
    }
    if (copies < num_turns) {
      CopyWeights(slot, copy_tile, copy_step);
      CopyTokens(slot, copy_step);
      Advance();
    }
    CommitCopies();
    if (++slot == stages) slot = 0;
    if (++step < num_steps) continue;

    // The tile is complete: the warps' parts of k are added in their order.
    step = 0;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const int token = 8 * i + lane % 4 * 2;
        float* to = sums + (warp * m + token) * kStride + 16 * r + g;
        if (token < m) {
          to[0] = sum[r][i][0];
          to[8] = sum[r][i][2];
        }
        if (token + 1 < m) {
          to[kStride] = sum[r][i][1];
          to[kStride + 8] = sum[r][i][3];
        }
        sum[r][i][0] = sum[r][i][1] = sum[r][i][2] = sum[r][i][3] = 0.0F;
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < m * kRows; i += kThreads) {
      const int token = i / kRows;
      const int row = tile * kRows + i % kRows;
      float total = 0.0F;
#pragma unroll
      for (int part = 0; part < kWarps; ++part)
        total += sums[(part * m + token) * kStride + i % kRows];
      if (row < args.out.n) StoreProduct(args.out, token, row, total);
    }
    tile += static_cast<int>(gridDim.x);
    __syncthreads();
  }
}

template <typename T, int kRowTiles, int kTokenTiles>
Status Launch(const MmaArgs& args, const MmaCut& cut, CudaStream& stream) {
  // More than half of a multiprocessor's shared memory: CTAs of the kernel behind start where this
  // one's have ended, one each. Two on one multiprocessor and none on another would be slower.
  const auto limit = static_cast<int>(stream.gpu().max_shared_bytes_per_block);
  static SharedMemoryLimit shared_memory;
  RETURN_IF_ERROR(shared_memory.Raise(SkinnyMmaKernel<T, kRowTiles, kTokenTiles>, limit, stream));
  // Every CTA takes the same number of tiles but for one.
  const int slots = stream.num_sms();
  const int rounds = (args.num_tiles + slots - 1) / slots;
  LaunchAttributes attributes(cut.overlap && CanOverlap());
  const cudaLaunchConfig_t config = {
      .gridDim = dim3(static_cast<unsigned>((args.num_tiles + rounds - 1) / rounds)),
      .blockDim = dim3(kThreads),
      .dynamicSmemBytes =
          static_cast<size_t>(std::max(SharedBytes(kRowTiles, args.stages, args.m), limit / 2 + 1)),
      .stream = stream.handle(),
      .attrs = attributes.list,
      .numAttrs = attributes.count};
  return inflight::cuda::ToStatus(
      cudaLaunchKernelEx(&config, SkinnyMmaKernel<T, kRowTiles, kTokenTiles>, args), "skinny_mma");
}

template <typename T>
Status Launch(const MmaArgs& args, const MmaCut& cut, CudaStream& stream) {
  const bool is_wide = args.m > 8;
  switch (cut.row_tiles) {
    case 1:
      return is_wide ? Launch<T, 1, 2>(args, cut, stream) : Launch<T, 1, 1>(args, cut, stream);
    case 2:
      return is_wide ? Launch<T, 2, 2>(args, cut, stream) : Launch<T, 2, 1>(args, cut, stream);
    case 3:
      return is_wide ? Launch<T, 3, 2>(args, cut, stream) : Launch<T, 3, 1>(args, cut, stream);
    default:
      return is_wide ? Launch<T, 4, 2>(args, cut, stream) : Launch<T, 4, 1>(args, cut, stream);
  }
}

}  // namespace

bool SkinnyMmaCanRun(const GemmParams& params) {
  return params.m <= kMaxTokens && params.n < (int64_t{1} << 30) &&
         (params.dtype == DType::kBF16 || params.dtype == DType::kF16 ||
          params.dtype == DType::kF8E4M3);
}

// Beyond 8 tokens each tile's reading of x costs more than what the library loses, but for narrow
// matrices, where it leaves multiprocessors idle (measured on an H200 with the shapes of an 8B
// model).
bool PreferSkinny(const GemmParams& params) {
  constexpr int64_t kAlwaysTokens = 8;
  constexpr int64_t kNarrow = 8192;
  if (!SkinnyMmaCanRun(params)) return false;
  return params.m <= kAlwaysTokens || (params.n <= kNarrow && params.dtype != DType::kF8E4M3);
}

// The height of tiles that leaves the fewest multiprocessors without one. Higher ones read x less
// often and add the warps' sums less often, which counts where x is wide and w narrow.
MmaCut SkinnyMmaCut(const GemmParams& params, const CudaStream& stream) {
  const bool prefers_high = params.m > 8 || params.dtype == DType::kF8E4M3;
  constexpr double kWorth[] = {0.93, 1.0, 1.0, 1.03};
  constexpr double kWorthHigh[] = {0.85, 1.0, 1.1, 1.13};
  constexpr int kStages[] = {4, 4, 5, 4};
  const auto limit = static_cast<int>(stream.gpu().max_shared_bytes_per_block);
  MmaCut best;
  double best_score = 0;
  for (int row_tiles = 1; row_tiles <= 4; ++row_tiles) {
    if (SharedBytes(row_tiles, 2, static_cast<int>(params.m)) > limit) continue;
    const int64_t tiles = (params.n + 16 * row_tiles - 1) / (16 * row_tiles);
    const int64_t rounds = (tiles + stream.num_sms() - 1) / stream.num_sms();
    const double used = static_cast<double>(params.n) /
                        static_cast<double>(rounds * stream.num_sms() * 16 * row_tiles);
    const double score = used * (prefers_high ? kWorthHigh : kWorth)[row_tiles - 1];
    if (score <= best_score) continue;
    best_score = score;
    best = {.row_tiles = row_tiles, .stages = kStages[row_tiles - 1]};
  }
  if (params.dtype == DType::kF8E4M3) best.stages = best.row_tiles == 2 ? 3 : 4;
  return best;
}

Status SkinnyMma(const GemmParams& params, const MmaCut& cut, CudaStream& stream) {
  if (params.m == 0 || params.n == 0) return Status::Ok();
  const int rows = 16 * cut.row_tiles;
  // The kernel before may be the one that widens integers into the workspace.
  const bool is_constant = params.w != stream.workspace().weights;
  MmaArgs args = {.x = static_cast<const uint8_t*>(params.x),
                  .w = static_cast<const uint8_t*>(params.w),
                  .row_bytes = params.k * static_cast<int64_t>(SizeOf(params.dtype)),
                  .m = static_cast<int>(params.m),
                  .num_tiles = static_cast<int>((params.n + rows - 1) / rows),
                  .stages = std::clamp(cut.stages, 2, kMaxStages),
                  .copy_w_early = is_constant,
                  .out = OutputOf(params)};
  const auto limit = static_cast<int>(stream.gpu().max_shared_bytes_per_block);
  while (args.stages > 2 && SharedBytes(cut.row_tiles, args.stages, args.m) > limit) --args.stages;
  switch (params.dtype) {
    case DType::kF16:
      return Launch<__half>(args, cut, stream);
    case DType::kF8E4M3:
      return Launch<__nv_fp8_e4m3>(args, cut, stream);
    default:
      return Launch<__nv_bfloat16>(args, cut, stream);
  }
}

Status SkinnyMma(const GemmParams& params, CudaStream& stream) {
  return SkinnyMma(params, SkinnyMmaCut(params, stream), stream);
}

}  // namespace inflight::ops::cuda

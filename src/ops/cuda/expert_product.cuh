// SPDX-License-Identifier: Apache-2.0
// Products of tokens and the weights of their experts, all experts of a layer in one launch.
//
// A CTA computes kRows rows of one expert's weight times up to kTokens of its places. Both pass
// through a ring of stages of 128 bytes along k in shared memory (cp.async), whose chunks of 16
// are swizzled by the row. Rows of weights are the 16-row operand of mma.m16n8k16, tokens its 8
// columns: few tokens waste columns, not bytes of weights.
//
// E4M3 is multiplied 32 k at a time, whose operands lie in registers as those of 16 k of 16 bits
// do: an mma.m16n8k32 takes what ldmatrix gave for m16n8k16.
//
// Of a gated expert 8 rows of `up` stand before the 8 of `gate` for the same outputs in each
// operand, so that a thread holds both factors of what it writes.
#pragma once

#include <algorithm>

#include "ops/cuda/activate.cuh"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/experts.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_memory_limit.h"
#include "ops/cuda/vector.cuh"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {

// kWarpsOfRows * kWarpsOfTokens warps, each with kRowTiles * 16 rows and kTokenTiles * 8 tokens.
template <int kWarpsOfRows_, int kWarpsOfTokens_, int kRowTiles_, int kTokenTiles_, int kStages_,
          int kCtas_>
struct ExpertTile {
  static constexpr int kWarpsOfRows = kWarpsOfRows_;
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr int kStages = kStages_;
  static constexpr int kCtas = kCtas_;  // of a multiprocessor
  static constexpr int kThreads = 32 * kWarpsOfRows_ * kWarpsOfTokens_;
  static constexpr int kRows = 16 * kRowTiles_ * kWarpsOfRows_;
  static constexpr int kTokens = 8 * kTokenTiles_ * kWarpsOfTokens_;
  static constexpr int kStageBytes = (kRows + kTokens) * 128;
  static constexpr int kSharedBytes = kStages_ * kStageBytes;
};

using ExpertTile8 = ExpertTile<4, 1, 1, 1, 6, 4>;
using ExpertTile16 = ExpertTile<4, 1, 1, 2, 6, 3>;
using ExpertTile32 = ExpertTile<4, 1, 2, 4, 4, 2>;
using ExpertTile64 = ExpertTile<4, 1, 2, 8, 4, 2>;
using ExpertTile128 = ExpertTile<4, 2, 2, 8, 3, 2>;

// Places [first, first + count) of an expert; count 0: the CTA has nothing to do.
struct ExpertPlaces {
  int expert = 0, first = 0, count = 0;
};

// Tile `tile` of those that the experts' places are cut into, expert by expert. By a whole warp,
// whose lanes look at four experts each.
template <int kTokens>
__device__ ExpertPlaces FindPlaces(const int32_t* begins, int num_experts, int tile) {
  constexpr int kPerLane = 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int e0 = 0; e0 < num_experts; e0 += kWarp * kPerLane) {
    const int e = e0 + kPerLane * lane;
    int begin[kPerLane + 1];
#pragma unroll
    for (int i = 0; i <= kPerLane; ++i) begin[i] = begins[min(e + i, num_experts)];
    int of_lane = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) of_lane += (begin[i + 1] - begin[i] + kTokens - 1) / kTokens;
    int up_to = of_lane;  // tiles of this and the lanes before
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const int before = __shfl_up_sync(kAllLanes, up_to, distance);
      if (lane >= distance) up_to += before;
    }
    const int total = __shfl_sync(kAllLanes, up_to, kWarp - 1);
    if (tile >= total) {
      tile -= total;
      continue;
    }
    const int owner = __ffs(static_cast<int>(__ballot_sync(kAllLanes, tile < up_to))) - 1;
    int rest = tile - (up_to - of_lane);
    ExpertPlaces found;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int tiles = (begin[i + 1] - begin[i] + kTokens - 1) / kTokens;
      if (rest >= 0 && rest < tiles) {
        const int first = begin[i] + rest * kTokens;
        found = {e + i, first, min(kTokens, begin[i + 1] - first)};
      }
      rest -= tiles;
    }
    return {__shfl_sync(kAllLanes, found.expert, owner), __shfl_sync(kAllLanes, found.first, owner),
            __shfl_sync(kAllLanes, found.count, owner)};
  }
  return {};
}

// Where chunk `chunk` of row `row` lies in a tile of rows of 128 bytes.
__device__ inline uint32_t ChunkAt(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) * 16));
}

__device__ inline float GatedProduct(const ExpertProduct& p, float gate, float up) {
  if (p.limit == 0) return Activate(p.activation, gate) * up;
  // Not by fminf and fmaxf, which would make a limit of NaN.
  const float g = gate > p.limit ? p.limit : gate;
  const float u = up > p.limit ? p.limit : up < -p.limit ? -p.limit : up;
  return TimesSigmoid(g, 1.702F * g) * (u + 1.0F);
}

template <typename T>
__device__ inline void ExpertMma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, Fp8>) {
#if __CUDA_ARCH__ >= 890
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    // Code of compute_80 on a later GPU: the same codes as halves, first those in the lower halves
    // of all words, then the others. Both operands take the same k each time.
    const uint32_t first[] = {HalvesOfFp8(a[0]), HalvesOfFp8(a[1]), HalvesOfFp8(a[2]),
                              HalvesOfFp8(a[3])};
    const uint32_t second[] = {HalvesOfFp8(a[0] >> 16), HalvesOfFp8(a[1] >> 16),
                               HalvesOfFp8(a[2] >> 16), HalvesOfFp8(a[3] >> 16)};
    Mma<__half>(c, first, HalvesOfFp8(b0), HalvesOfFp8(b1));
    Mma<__half>(c, second, HalvesOfFp8(b0 >> 16), HalvesOfFp8(b1 >> 16));
#endif
  } else {
    Mma<T>(c, a, b0, b1);
  }
}

// Writes what a thread has sums of, of the tile whose first column is `first_column`. `warp_row`
// and `warp_token` are the first of its warp's rows and tokens.
template <typename Y, typename Tile, bool kIsGated, bool kHasScales>
__device__ void StoreSums(const ExpertProduct& p, const ExpertPlaces& places, int first_column,
                          int warp_row, int warp_token,
                          float (&sum)[Tile::kRowTiles][Tile::kTokenTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t expert_row = int64_t{places.expert} * p.width * (kIsGated ? 2 : 1);
  const int g = lane / 4;
  const int j = lane % 4;
  if constexpr (kHasScales) {
#pragma unroll
    for (int t = 0; t < Tile::kTokenTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = warp_token + 8 * t + 2 * j + i;
        if (token >= places.count) continue;
        const int place = places.first + token;
        const float scale = p.x_scales[p.tokens == nullptr ? place : p.tokens[place]];
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r) sum[r][t][i] *= scale, sum[r][t][2 + i] *= scale;
      }
  }
#pragma unroll
  for (int r = 0; r < Tile::kRowTiles; ++r) {
    // The rows of the weight that this thread has sums of: `upper`, and `to_lower` behind it.
    const int column = first_column + (warp_row + 16 * r) / (kIsGated ? 2 : 1);
    if (column >= p.width) continue;
    const int64_t upper = expert_row + column + g;
    const int to_lower = kIsGated ? p.width : 8;
    float upper_bias = 0, lower_bias = 0, upper_scale = 1, lower_scale = 1;
    if (p.bias != nullptr) upper_bias = p.bias[upper], lower_bias = p.bias[upper + to_lower];
    if constexpr (kHasScales)
      upper_scale = p.w_scales[upper], lower_scale = p.w_scales[upper + to_lower];
#pragma unroll
    for (int t = 0; t < Tile::kTokenTiles; ++t) {
      if (warp_token + 8 * t >= places.count) continue;
      float c[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        c[i] = fmaf(sum[r][t][i], upper_scale, upper_bias);
        c[2 + i] = fmaf(sum[r][t][2 + i], lower_scale, lower_bias);
      }
      if constexpr (kIsGated) {
        const uint32_t two = PackTwo<Y>(GatedProduct(p, c[2], c[0]), GatedProduct(p, c[3], c[1]));
        const uint32_t of_token = TransposeMatrix(two);  // token g, columns 2j and 2j + 1
        const int token = warp_token + 8 * t + g;
        if (token < places.count)
          *reinterpret_cast<uint32_t*>(static_cast<Y*>(p.y) +
                                       int64_t{places.first + token} * p.width + column + 2 * j) =
              of_token;
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = warp_token + 8 * t + 2 * j + i;
          if (token >= places.count) continue;
          const float weight = p.weights[places.first + token];
          Y* const y = static_cast<Y*>(p.y) + int64_t{places.first + token} * p.width + column + g;
          y[0] = weight * c[i];
          y[8] = weight * c[2 + i];
        }
      }
    }
  }
}

// T: of x and w; Y: of y.
template <typename T, typename Y, typename Tile, bool kIsGated>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kCtas)
    ExpertProductKernel(const ExpertProduct p) {
  constexpr int kChunkK = 16 / sizeof(T);
  constexpr int kStepK = 8 * kChunkK;
  constexpr bool kHasScales = std::is_same_v<T, Fp8>;
  constexpr int kRowsPerCopy = Tile::kThreads / 8;
  constexpr int kColumns = kIsGated ? Tile::kRows / 2 : Tile::kRows;  // of y
  constexpr int kTokenCopies = (Tile::kTokens + kRowsPerCopy - 1) / kRowsPerCopy;
  extern __shared__ __align__(128) uint8_t shared[];
  BeginOverlapped();
  const ExpertPlaces places =
      FindPlaces<Tile::kTokens>(p.begins, p.num_experts, static_cast<int>(blockIdx.y));
  if (places.count == 0) return;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp_row = thread / 32 % Tile::kWarpsOfRows * Tile::kRowTiles * 16;
  const int warp_token = thread / 32 / Tile::kWarpsOfRows * Tile::kTokenTiles * 8;
  const uint32_t ring = SharedAddress(shared);

  // What this thread copies: chunk `chunk` of rows copy_row + i * kRowsPerCopy.
  const int chunk = thread % 8;
  const int copy_row = thread / 8;
  static_assert(kRowsPerCopy % 16 == 0 && Tile::kRows % kRowsPerCopy == 0);
  const bool is_gate = kIsGated && copy_row % 16 >= 8;
  const int copy_column = first_column + (kIsGated ? copy_row / 16 * 8 + copy_row % 8 : copy_row);
  constexpr int kColumnsPerCopy = kIsGated ? kRowsPerCopy / 2 : kRowsPerCopy;
  const int64_t expert_row = int64_t{places.expert} * p.width * (kIsGated ? 2 : 1);
  const T* const w =
      static_cast<const T*>(p.w) + (expert_row + (is_gate ? p.width : 0)) * p.k + chunk * kChunkK;
  const T* x[kTokenCopies];
#pragma unroll
  for (int i = 0; i < kTokenCopies; ++i) {
    const int place = places.first + min(copy_row + i * kRowsPerCopy, places.count - 1);
    const int64_t row = p.tokens == nullptr ? place : p.tokens[place];
    x[i] = static_cast<const T*>(p.x) + row * p.k + chunk * kChunkK;
  }
  const auto Copy = [&](int slot, int step) {
    const uint32_t to = ring + slot * Tile::kStageBytes;
    const int64_t k = int64_t{step} * kStepK;
    const bool is_inside = k + chunk * kChunkK < p.k;
#pragma unroll
    for (int i = 0; i < Tile::kRows / kRowsPerCopy; ++i) {
      const int column = copy_column + i * kColumnsPerCopy;
      const bool is_used = is_inside && column < p.width;
      CopyAsync16(to + ChunkAt(copy_row + i * kRowsPerCopy, chunk),
                  is_used ? w + column * p.k + k : w, is_used);
    }
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      const int row = copy_row + i * kRowsPerCopy;
      if (Tile::kTokens % kRowsPerCopy != 0 && row >= Tile::kTokens) continue;
      const bool is_used = is_inside && row < places.count;
      CopyAsync16(to + Tile::kRows * 128 + ChunkAt(row, chunk), is_used ? x[i] + k : x[i], is_used);
    }
  };

  float sum[Tile::kRowTiles][Tile::kTokenTiles][4] = {};
  const int num_steps = static_cast<int>((p.k + kStepK - 1) / kStepK);
  for (int slot = 0; slot < Tile::kStages - 1; ++slot) {
    if (slot < num_steps) Copy(slot, slot);
    CommitCopies();
  }
  int slot = 0;
  for (int step = 0; step < num_steps; ++step) {
    WaitForCopies<Tile::kStages - 2>();
    __syncthreads();
    const int next = step + Tile::kStages - 1;
    if (next < num_steps) Copy(slot == 0 ? Tile::kStages - 1 : slot - 1, next);
    CommitCopies();
    const uint32_t w_at = ring + slot * Tile::kStageBytes;
    const uint32_t x_at = w_at + Tile::kRows * 128;
    uint32_t b[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // of 32 bytes along k
      uint32_t a[Tile::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < Tile::kRowTiles; ++r)
        LoadMatrices(a[r], w_at + ChunkAt(warp_row + 16 * r + lane % 16, 2 * s + lane / 16));
      if constexpr (Tile::kTokenTiles == 1) {
        // One load for two steps.
        if (s % 2 == 0) LoadMatrices(b, x_at + ChunkAt(warp_token + lane % 8, 2 * s + lane / 8));
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r)
          ExpertMma<T>(sum[r][0], a[r], b[s % 2 * 2], b[s % 2 * 2 + 1]);
      } else {
#pragma unroll
        for (int t = 0; t < Tile::kTokenTiles; t += 2) {
          if (warp_token + 8 * t >= places.count) continue;
          LoadMatrices(b, x_at + ChunkAt(warp_token + 8 * t + lane / 16 * 8 + lane % 8,
                                         2 * s + lane / 8 % 2));
#pragma unroll
          for (int r = 0; r < Tile::kRowTiles; ++r) {
            ExpertMma<T>(sum[r][t], a[r], b[0], b[1]);
            ExpertMma<T>(sum[r][t + 1], a[r], b[2], b[3]);
          }
        }
      }
    }
    if (++slot == Tile::kStages) slot = 0;
  }

  StoreSums<Y, Tile, kIsGated, kHasScales>(p, places, first_column, warp_row, warp_token, sum);
}

template <typename Tile, bool kIsGated>
Status LaunchExpertTiles(void (*kernel)(ExpertProduct), const ExpertProduct& p, int shared_bytes,
                         CudaStream& stream) {
  constexpr int kColumns = kIsGated ? Tile::kRows / 2 : Tile::kRows;
  // Each expert has at most one tile that is not full, and none without a place.
  const int most_tiles =
      std::min(p.num_places, p.num_places / Tile::kTokens + std::min(p.num_experts, p.num_places));
  const dim3 grid(static_cast<unsigned>((p.width + kColumns - 1) / kColumns),
                  static_cast<unsigned>(most_tiles));
  return inflight::cuda::ToStatus(
      LaunchOverlapped(kernel, grid, dim3(Tile::kThreads), shared_bytes, stream.handle(), p),
      "expert_product");
}

// The tokens of a tile for what an expert has on average: routes are uneven, and a tile that is not
// full costs little, while a further one reads the weights again.
inline int TokensOfTile(const ExpertProduct& p) {
  const int expected = std::max(p.num_places / p.num_holders, 1);
  const int chosen = std::min(p.num_experts, expected);
  if (expected <= 2 * chosen) return 8;
  if (expected <= 8 * chosen) return 16;
  if (expected <= 20 * chosen) return 32;
  return expected <= 96 * chosen ? 64 : 128;
}

template <typename T, typename Y, bool kIsGated>
Status LaunchExpertProduct(const ExpertProduct& p, CudaStream& stream) {
  const auto launch = [&]<typename Tile>(std::type_identity<Tile>) -> Status {
    static SharedMemoryLimit shared_memory;
    RETURN_IF_ERROR(
        shared_memory.Raise(ExpertProductKernel<T, Y, Tile, kIsGated>, Tile::kSharedBytes, stream));
    return LaunchExpertTiles<Tile, kIsGated>(ExpertProductKernel<T, Y, Tile, kIsGated>, p,
                                             Tile::kSharedBytes, stream);
  };
  switch (TokensOfTile(p)) {
    case 8:
      return launch(std::type_identity<ExpertTile8>());
    case 16:
      return launch(std::type_identity<ExpertTile16>());
    case 32:
      return launch(std::type_identity<ExpertTile32>());
    case 64:
      return launch(std::type_identity<ExpertTile64>());
    default:
      return launch(std::type_identity<ExpertTile128>());
  }
}

}  // namespace inflight::ops::cuda

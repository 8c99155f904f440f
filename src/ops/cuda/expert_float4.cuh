// SPDX-License-Identifier: Apache-2.0
// Products of tokens and float4 weights of their experts in the order of tensor cores
// (ops/tensor_core_order.h): expert_product.cuh's tiles, of which codes and exponents pass through
// the ring and are widened in registers. Sums are those of the same weights in 16 bits, bit by bit.
#pragma once

#include <algorithm>

#include "ops/cuda/expert_product.cuh"
#include "ops/cuda/float4_halves.cuh"

namespace inflight::ops::cuda {

// kBoxes times 64 elements of k are a stage: 128 bytes of a token each, 32 of a row, two exponents.
template <typename Tile, int kBoxes_, int kStages_>
struct Float4Tile : Tile {
  static constexpr int kBoxes = kBoxes_;
  static constexpr int kStages = kStages_;
  static constexpr int kStepK = 64 * kBoxes;
  static constexpr int kRowChunks = 2 * kBoxes;  // of 16 bytes, each a group
  static constexpr int kRowBytes = Tile::kRows * kRowChunks * 16;
  static constexpr int kBoxBytes = Tile::kTokens * 128;
  static constexpr int kExponentBytes = Tile::kRows * kRowChunks;
  static constexpr int kStageBytes = kRowBytes + kBoxes * kBoxBytes + kExponentBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;

  // Where chunk `chunk` of row `row` lies: of 8 rows the same chunk is in different banks.
  __device__ static uint32_t ChunkOfRow(int row, int chunk) {
    constexpr int kRowsPerLine = 8 / kRowChunks;
    return static_cast<uint32_t>((row * kRowChunks + (chunk ^ (row / kRowsPerLine % kRowChunks))) *
                                 16);
  }
};

using Float4Tile8 = Float4Tile<ExpertTile8, 4, 4>;
using Float4Tile16 = Float4Tile<ExpertTile16, 4, 4>;
using Float4Tile32 = Float4Tile<ExpertTile32, 2, 4>;
using Float4Tile64 = Float4Tile<ExpertTile64, 2, 4>;
using Float4Tile128 = Float4Tile<ExpertTile128, 1, 4>;

// What a thread copies of each stage.
template <typename T, typename Tile, bool kIsGated>
class Float4Copies {
 public:
  __device__ Float4Copies(const ExpertProduct& p, const ExpertPlaces& places, int first_column)
      : k_(static_cast<int>(p.k)), width_(p.width), count_(places.count) {
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t expert_row = int64_t{places.expert} * p.width * (kIsGated ? 2 : 1);

    chunk_ = thread % Tile::kRowChunks;
    row_ = thread / Tile::kRowChunks;
    const bool is_gate = kIsGated && row_ % 16 >= 8;
    column_ = first_column + (kIsGated ? row_ / 16 * 8 + row_ % 8 : row_);
    w_ = static_cast<const uint8_t*>(p.w) + (expert_row + (is_gate ? p.width : 0)) * (p.k / 2) +
         chunk_ * 16;

    piece_ = thread % 8;
    token_ = thread / 8 % Tile::kTokens;
    box_ = thread / 8 / Tile::kTokens;
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      const int place = places.first + min(token_ + i * kTokensPerCopy, places.count - 1);
      const int64_t row = p.tokens == nullptr ? place : p.tokens[place];
      x_[i] = static_cast<const T*>(p.x) + row * p.k + piece_ * 8;
    }

    group_ = thread / kColumnChunks;
    const int of_group = thread % kColumnChunks;
    const bool is_of_gate = kIsGated && of_group >= kColumnChunks / 2;
    const int column = first_column + of_group % kBranchChunks * 16;
    const int64_t row = expert_row + (is_of_gate ? p.width : 0) + column;
    has_exponents_ = thread < kExponentChunks && column < p.width;
    exponents_ = p.exponents + row / kScalePanelRows * (p.k / kFloat4Unit) * kScalePanelRows +
                 row % kScalePanelRows;
    exponents_to_ = static_cast<uint32_t>(group_ * Tile::kRows + of_group * 16);
  }

  __device__ void Begin(uint32_t stage, int step) const {
    const int k = step * Tile::kStepK;
    const bool is_row_inside = k + chunk_ * kFloat4Unit < k_;
#pragma unroll
    for (int i = 0; i < Tile::kRows / kRowsPerCopy; ++i) {
      const int column = column_ + i * kColumnsPerCopy;
      const bool is_used = is_row_inside && column < width_;
      CopyAsync16(stage + Tile::ChunkOfRow(row_ + i * kRowsPerCopy, chunk_),
                  is_used ? w_ + int64_t{column} * (k_ / 2) + k / 2 : w_, is_used);
    }
#pragma unroll
    for (int b = 0; b < Tile::kBoxes; b += kBoxesPerCopy) {
      const int at = k + (b + box_) * 64;
#pragma unroll
      for (int i = 0; i < kTokenCopies; ++i) {
        const int token = token_ + i * kTokensPerCopy;
        const bool is_used = at < k_ && token < count_;
        CopyAsync16(stage + Tile::kRowBytes + (b + box_) * Tile::kBoxBytes + ChunkAt(token, piece_),
                    is_used ? x_[i] + at : x_[i], is_used);
      }
    }
    if (!has_exponents_) return;
    const int group = k / kFloat4Unit + group_;
    const bool is_used = group < k_ / kFloat4Unit;
    CopyAsync16(stage + Tile::kRowBytes + Tile::kBoxes * Tile::kBoxBytes + exponents_to_,
                is_used ? exponents_ + int64_t{group} * kScalePanelRows : exponents_, is_used);
  }

 private:
  static constexpr int kRowsPerCopy = Tile::kThreads / Tile::kRowChunks;
  static constexpr int kColumnsPerCopy = kIsGated ? kRowsPerCopy / 2 : kRowsPerCopy;
  static_assert(kRowsPerCopy % 16 == 0 && Tile::kRows % kRowsPerCopy == 0);
  static constexpr int kTokensPerCopy = Tile::kThreads / 8;
  static constexpr int kTokenCopies = std::max(1, Tile::kTokens / kTokensPerCopy);
  static constexpr int kBoxesPerCopy = std::max(1, kTokensPerCopy / Tile::kTokens);
  static_assert(Tile::kBoxes % kBoxesPerCopy == 0);
  static constexpr int kColumnChunks = Tile::kRows / 16;  // of exponents of a group
  static constexpr int kBranchChunks = kIsGated ? kColumnChunks / 2 : kColumnChunks;
  static constexpr int kExponentChunks = Tile::kRowChunks * kColumnChunks;
  static_assert(kExponentChunks <= Tile::kThreads);

  int k_, width_, count_;
  const uint8_t* w_;  // chunk `chunk_` of rows row_ + i * kRowsPerCopy of the tile
  int chunk_, row_, column_;
  const T* x_[kTokenCopies];  // piece `piece_` of tokens token_ + i * kTokensPerCopy
  int piece_, token_, box_;
  const uint8_t* exponents_;  // 16 of group `group_` of a stage
  int group_;
  uint32_t exponents_to_;
  bool has_exponents_;
};

// The sums of a warp's rows and tokens.
template <typename T, typename Tile, bool kIsGated>
struct Float4Sums {
  float sum[Tile::kRowTiles][Tile::kTokenTiles][4] = {};
  int lane, warp_row, warp_token, count;

  __device__ explicit Float4Sums(int places)
      : lane(static_cast<int>(threadIdx.x) % 32),
        warp_row(static_cast<int>(threadIdx.x) / 32 % Tile::kWarpsOfRows * Tile::kRowTiles * 16),
        warp_token(static_cast<int>(threadIdx.x) / 32 / Tile::kWarpsOfRows * Tile::kTokenTiles * 8),
        count(places) {}

  // Adds the products of `num_boxes` boxes of a stage.
  __device__ void Add(uint32_t stage, int num_boxes) {
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
      if (box >= num_boxes) break;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {  // of steps of 16 elements
        uint32_t upper[Tile::kRowTiles][4], lower[Tile::kRowTiles][4];
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r)
          Widen(stage, 2 * box + pair, warp_row + 16 * r, upper[r], lower[r]);
        AddPair(stage + Tile::kRowBytes + box * Tile::kBoxBytes, pair, upper, lower);
      }
    }
  }

 private:
  // The lane's parts of rows lane / 4 and 8 below it of the 16 from `row` on, of group `group` of
  // the stage.
  __device__ void Widen(uint32_t stage, int group, int row, uint32_t (&upper)[4],
                        uint32_t (&lower)[4]) const {
    const int g = lane / 4;
    const uint32_t word = lane % 4 * 4;
    const uint32_t exponents = stage + Tile::kRowBytes + Tile::kBoxes * Tile::kBoxBytes +
                               group * Tile::kRows + (kIsGated ? row / 2 : row) + g;
    WidenFloat4<T>(LoadShared4(stage + Tile::ChunkOfRow(row + g, group) + word),
                   LoadSharedByte(exponents), upper);
    WidenFloat4<T>(LoadShared4(stage + Tile::ChunkOfRow(row + 8 + g, group) + word),
                   LoadSharedByte(exponents + (kIsGated ? Tile::kRows / 2 : 8)), lower);
  }

  __device__ void AddPair(uint32_t x_at, int pair, const uint32_t (&upper)[Tile::kRowTiles][4],
                          const uint32_t (&lower)[Tile::kRowTiles][4]) {
    uint32_t b[4];
    // One load for both steps.
    if constexpr (Tile::kTokenTiles == 1)
      LoadMatrices(b, x_at + ChunkAt(warp_token + lane % 8, 4 * pair + lane / 8));
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint32_t a[Tile::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < Tile::kRowTiles; ++r) {
        a[r][0] = upper[r][2 * s], a[r][1] = lower[r][2 * s];
        a[r][2] = upper[r][2 * s + 1], a[r][3] = lower[r][2 * s + 1];
      }
      if constexpr (Tile::kTokenTiles == 1) {
#pragma unroll
        for (int r = 0; r < Tile::kRowTiles; ++r) Mma<T>(sum[r][0], a[r], b[2 * s], b[2 * s + 1]);
      } else {
#pragma unroll
        for (int t = 0; t < Tile::kTokenTiles; t += 2) {
          if (warp_token + 8 * t >= count) continue;
          LoadMatrices(b, x_at + ChunkAt(warp_token + 8 * t + lane / 16 * 8 + lane % 8,
                                         4 * pair + 2 * s + lane / 8 % 2));
#pragma unroll
          for (int r = 0; r < Tile::kRowTiles; ++r) {
            Mma<T>(sum[r][t], a[r], b[0], b[1]);
            Mma<T>(sum[r][t + 1], a[r], b[2], b[3]);
          }
        }
      }
    }
  }
};

// T: of x, and of y where it is gated.
template <typename T, typename Y, typename Tile, bool kIsGated>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kCtas)
    Float4ExpertKernel(const ExpertProduct p) {
  constexpr int kColumns = kIsGated ? Tile::kRows / 2 : Tile::kRows;  // of y
  extern __shared__ __align__(128) uint8_t shared[];
  BeginOverlapped();
  const ExpertPlaces places =
      FindPlaces<Tile::kTokens>(p.begins, p.num_experts, static_cast<int>(blockIdx.y));
  if (places.count == 0) return;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const uint32_t ring = SharedAddress(shared);
  const Float4Copies<T, Tile, kIsGated> copies(p, places, first_column);
  Float4Sums<T, Tile, kIsGated> sums(places.count);
  const int num_boxes = static_cast<int>(p.k / 64);
  const int num_steps = (num_boxes + Tile::kBoxes - 1) / Tile::kBoxes;
  for (int slot = 0; slot < Tile::kStages - 1; ++slot) {
    if (slot < num_steps) copies.Begin(ring + slot * Tile::kStageBytes, slot);
    CommitCopies();
  }
  int slot = 0;
  for (int step = 0; step < num_steps; ++step) {
    WaitForCopies<Tile::kStages - 2>();
    __syncthreads();
    const int next = step + Tile::kStages - 1;
    if (next < num_steps)
      copies.Begin(ring + (slot == 0 ? Tile::kStages - 1 : slot - 1) * Tile::kStageBytes, next);
    CommitCopies();
    sums.Add(ring + slot * Tile::kStageBytes, num_boxes - step * Tile::kBoxes);
    if (++slot == Tile::kStages) slot = 0;
  }
  StoreSums<Y, Tile, kIsGated, /*kHasScales=*/false>(p, places, first_column, sums.warp_row,
                                                     sums.warp_token, sums.sum);
}

template <typename T, typename Y, bool kIsGated>
Status LaunchFloat4Experts(const ExpertProduct& p, CudaStream& stream) {
  const auto launch = [&]<typename Tile>(std::type_identity<Tile>) -> Status {
    static SharedMemoryLimit shared_memory;
    RETURN_IF_ERROR(
        shared_memory.Raise(Float4ExpertKernel<T, Y, Tile, kIsGated>, Tile::kSharedBytes, stream));
    return LaunchExpertTiles<Tile, kIsGated>(Float4ExpertKernel<T, Y, Tile, kIsGated>, p, stream);
  };
  switch (TokensOfTile(p)) {
    case 8:
      return launch(std::type_identity<Float4Tile8>());
    case 16:
      return launch(std::type_identity<Float4Tile16>());
    case 32:
      return launch(std::type_identity<Float4Tile32>());
    case 64:
      return launch(std::type_identity<Float4Tile64>());
    default:
      return launch(std::type_identity<Float4Tile128>());
  }
}

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
// Products of tokens and packed weights of their experts in the order of tensor cores
// (ops/tensor_core_order.h), float4 or FP8 in groups: expert_product.cuh's tiles, of which codes
// and scales pass through the ring and are widened in registers. Sums are those of the same weights
// rounded to 16 bits, bit by bit.
#pragma once

#include <algorithm>

#include "ops/cuda/expert_product.cuh"
#include "ops/cuda/float4_halves.cuh"

namespace inflight::ops::cuda {

// What a kernel must know of a form: of 64 elements of a row, a box, chunks of 16 bytes; and what a
// lane takes of a box of one row, its own elements of all four steps.
struct Float4Experts {
  static constexpr int kBoxChunks = 2;
  static constexpr int kGroup = kFloat4Unit;
  static constexpr bool kHasHigh = true;
  using Scale = uint8_t;  // e8m0
  static __device__ const uint8_t* ScalesOf(const ExpertProduct& p) { return p.exponents; }

  // Where a chunk of a row lies among `kRowChunks` of it: of 8 rows the same one is in different
  // banks.
  template <int kRowChunks>
  static __device__ int PlaceOf(int row, int chunk) {
    constexpr int kRowsPerLine = 8 / kRowChunks;
    return chunk ^ (row / kRowsPerLine % kRowChunks);
  }

  struct Part {
    uint32_t words[2], exponents[2];  // of two groups
  };
  // `chunk_at(i)`: the address of chunk i of the box; `scale_at(i)`: of the scale of its group i.
  template <typename ChunkAt, typename ScaleAt>
  static __device__ Part Load(const ChunkAt& chunk_at, const ScaleAt& scale_at, int quarter) {
    Part part;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      part.words[i] = LoadShared4(chunk_at(i) + quarter * 4);
      part.exponents[i] = LoadSharedByte(scale_at(i));
    }
    return part;
  }
  // Whether Widen must be told that a scale is high: seldom, so that a branch for all of a box
  // keeps others out of the way of its products.
  static __device__ bool IsHigh(const Part& part) {
    return max(part.exponents[0], part.exponents[1]) > kHighestOfOneStep;
  }
  template <typename T, bool kMayBeHigh>
  static __device__ void Widen(const Part& part, int pair, uint32_t (&pairs)[4]) {
    WidenFloat4<T, kMayBeHigh>(part.words[pair], part.exponents[pair], pairs);
  }
};

struct Fp8Experts {
  static constexpr int kBoxChunks = 4;
  static constexpr int kGroup = 128;
  static constexpr bool kHasHigh = false;
  using Scale = float;
  static __device__ const uint8_t* ScalesOf(const ExpertProduct& p) {
    return reinterpret_cast<const uint8_t*>(p.w_scales);
  }

  // Of two rows the same four chunks are in different banks.
  template <int kRowChunks>
  static __device__ int PlaceOf(int row, int chunk) {
    return kRowChunks < 8 ? chunk : chunk ^ (row % 2 * 4);
  }

  struct Part {
    uint4 codes;
    float scale;
  };
  template <typename ChunkAt, typename ScaleAt>
  static __device__ Part Load(const ChunkAt& chunk_at, const ScaleAt& scale_at, int quarter) {
    return {LoadShared16(chunk_at(quarter)), LoadSharedFloat(scale_at(0))};
  }
  static __device__ bool IsHigh(const Part&) { return false; }
  template <typename T, bool kMayBeHigh>
  static __device__ void Widen(const Part& part, int pair, uint32_t (&pairs)[4]) {
    WidenTwoSteps<T, Codes::kFp8>(part.codes, pair, pairs);
#pragma unroll
    for (uint32_t& two : pairs) {
      const float2 values = UnpackTwo<T>(two);
      two = PackTwo<T>(values.x * part.scale, values.y * part.scale);
    }
  }
};

// kBoxes boxes are a stage: 128 bytes of a token each.
template <typename Form_, typename Tile, int kBoxes_, int kStages_>
struct PackedTile : Tile {
  using Form = Form_;
  using Scale = typename Form::Scale;
  static constexpr int kBoxes = kBoxes_;
  static constexpr int kStages = kStages_;
  static constexpr int kStepK = 64 * kBoxes;
  static constexpr int kRowChunks = Form::kBoxChunks * kBoxes;
  static constexpr int kGroups = std::max(1, kStepK / Form::kGroup);
  static constexpr int kRowBytes = Tile::kRows * kRowChunks * 16;
  static constexpr int kBoxBytes = Tile::kTokens * 128;
  static constexpr int kScalesAt = kRowBytes + kBoxes * kBoxBytes;  // [kGroups][kRows]
  static constexpr int kScaleSize = sizeof(Scale);
  static constexpr int kStageBytes = kScalesAt + kGroups * Tile::kRows * kScaleSize;
  static constexpr int kSharedBytes = kStages * kStageBytes;

  __device__ static uint32_t ChunkOfRow(int row, int chunk) {
    return static_cast<uint32_t>(
        (row * kRowChunks + Form::template PlaceOf<kRowChunks>(row, chunk)) * 16);
  }
};

template <typename Form>
struct PackedTiles;
template <>
struct PackedTiles<Float4Experts> {
  using Of8 = PackedTile<Float4Experts, ExpertTile8, 4, 4>;
  using Of16 = PackedTile<Float4Experts, ExpertTile16, 4, 4>;
  using Of32 = PackedTile<Float4Experts, ExpertTile32, 2, 4>;
  using Of64 = PackedTile<Float4Experts, ExpertTile64, 2, 4>;
  using Of128 = PackedTile<Float4Experts, ExpertTile128, 1, 4>;
};
template <>
struct PackedTiles<Fp8Experts> {
  using Of8 = PackedTile<Fp8Experts, ExpertTile8, 2, 5>;
  using Of16 = PackedTile<Fp8Experts, ExpertTile16, 2, 5>;
  using Of32 = PackedTile<Fp8Experts, ExpertTile32, 2, 4>;
  using Of64 = PackedTile<Fp8Experts, ExpertTile64, 1, 5>;
  using Of128 = PackedTile<Fp8Experts, ExpertTile128, 1, 4>;
};

// What a thread copies of each stage.
template <typename T, typename Tile, bool kIsGated>
class PackedCopies {
 public:
  __device__ PackedCopies(const ExpertProduct& p, const ExpertPlaces& places, int first_column)
      : k_(static_cast<int>(p.k)), width_(p.width), count_(places.count) {
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t expert_row = int64_t{places.expert} * p.width * (kIsGated ? 2 : 1);

    chunk_ = thread % Tile::kRowChunks;
    row_ = thread / Tile::kRowChunks;
    const bool is_gate = kIsGated && row_ % 16 >= 8;
    column_ = first_column + (kIsGated ? row_ / 16 * 8 + row_ % 8 : row_);
    w_ = static_cast<const uint8_t*>(p.w) + (expert_row + (is_gate ? p.width : 0)) * RowBytes() +
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
    const int column = first_column + of_group % kBranchChunks * kChunkScales;
    const int64_t row = expert_row + (is_of_gate ? p.width : 0) + column;
    has_scales_ = thread < kScaleChunks && column < p.width;
    const int64_t at =
        row / kScalePanelRows * (p.k / Form::kGroup) * kScalePanelRows + row % kScalePanelRows;
    scales_ = Form::ScalesOf(p) + at * Tile::kScaleSize;
    scales_to_ = static_cast<uint32_t>(group_ * Tile::kRows * Tile::kScaleSize + of_group * 16);
  }

  __device__ void Begin(uint32_t stage, int step) const {
    const int k = step * Tile::kStepK;
    const bool is_row_inside = k + chunk_ * kChunkElements < k_;
#pragma unroll
    for (int i = 0; i < Tile::kRows / kRowsPerCopy; ++i) {
      const int column = column_ + i * kColumnsPerCopy;
      const bool is_used = is_row_inside && column < width_;
      CopyAsync16(stage + Tile::ChunkOfRow(row_ + i * kRowsPerCopy, chunk_),
                  is_used ? w_ + column * RowBytes() + k / kChunkElements * 16 : w_, is_used);
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
    if (!has_scales_) return;
    const int group = k / Form::kGroup + group_;
    const bool is_used = group < k_ / Form::kGroup;
    CopyAsync16(stage + Tile::kScalesAt + scales_to_,
                is_used ? scales_ + int64_t{group} * kScalePanelRows * Tile::kScaleSize : scales_,
                is_used);
  }

 private:
  using Form = typename Tile::Form;
  static constexpr int kChunkElements = 64 / Form::kBoxChunks;
  __device__ int64_t RowBytes() const { return k_ / kChunkElements * 16; }

  static constexpr int kRowsPerCopy = Tile::kThreads / Tile::kRowChunks;
  static constexpr int kColumnsPerCopy = kIsGated ? kRowsPerCopy / 2 : kRowsPerCopy;
  static_assert(kRowsPerCopy % 16 == 0 && Tile::kRows % kRowsPerCopy == 0);
  static constexpr int kTokensPerCopy = Tile::kThreads / 8;
  static constexpr int kTokenCopies = std::max(1, Tile::kTokens / kTokensPerCopy);
  static constexpr int kBoxesPerCopy = std::max(1, kTokensPerCopy / Tile::kTokens);
  static_assert(Tile::kBoxes % kBoxesPerCopy == 0);
  static constexpr int kChunkScales = 16 / Tile::kScaleSize;
  static constexpr int kColumnChunks = Tile::kRows / kChunkScales;  // of scales of a group
  static constexpr int kBranchChunks = kIsGated ? kColumnChunks / 2 : kColumnChunks;
  static constexpr int kScaleChunks = Tile::kGroups * kColumnChunks;
  static_assert(kScaleChunks <= Tile::kThreads);

  int k_, width_, count_;
  const uint8_t* w_;  // chunk `chunk_` of rows row_ + i * kRowsPerCopy of the tile
  int chunk_, row_, column_;
  const T* x_[kTokenCopies];  // piece `piece_` of tokens token_ + i * kTokensPerCopy
  int piece_, token_, box_;
  const uint8_t* scales_;  // 16 bytes of group `group_` of a stage
  int group_;
  uint32_t scales_to_;
  bool has_scales_;
};

// The sums of a warp's rows and tokens.
template <typename T, typename Tile, bool kIsGated>
struct PackedSums {
  float sum[Tile::kRowTiles][Tile::kTokenTiles][4] = {};
  int lane, warp_row, warp_token, count;

  __device__ explicit PackedSums(int places)
      : lane(static_cast<int>(threadIdx.x) % 32),
        warp_row(static_cast<int>(threadIdx.x) / 32 % Tile::kWarpsOfRows * Tile::kRowTiles * 16),
        warp_token(static_cast<int>(threadIdx.x) / 32 / Tile::kWarpsOfRows * Tile::kTokenTiles * 8),
        count(places) {}

  // Adds the products of `num_boxes` boxes of a stage.
  __device__ void Add(uint32_t stage, int num_boxes) {
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
      if (box >= num_boxes) break;
      typename Form::Part above[Tile::kRowTiles], below[Tile::kRowTiles];
      bool is_high = false;
#pragma unroll
      for (int r = 0; r < Tile::kRowTiles; ++r) {
        const int row = warp_row + 16 * r + lane / 4;
        const int scale = (kIsGated ? (warp_row + 16 * r) / 2 : warp_row + 16 * r) + lane / 4;
        above[r] = Load(stage, box, row, scale);
        below[r] = Load(stage, box, row + 8, scale + (kIsGated ? Tile::kRows / 2 : 8));
        is_high = is_high || Form::IsHigh(above[r]) || Form::IsHigh(below[r]);
      }
      const uint32_t x_at = stage + Tile::kRowBytes + box * Tile::kBoxBytes;
      if (Form::kHasHigh && __any_sync(kAllLanes, is_high))
        AddBox<true>(x_at, above, below);
      else
        AddBox<false>(x_at, above, below);
    }
  }

 private:
  using Form = typename Tile::Form;

  template <bool kMayBeHigh>
  __device__ void AddBox(uint32_t x_at, const typename Form::Part (&above)[Tile::kRowTiles],
                         const typename Form::Part (&below)[Tile::kRowTiles]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // of steps of 16 elements
      uint32_t upper[Tile::kRowTiles][4], lower[Tile::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < Tile::kRowTiles; ++r) {
        Form::template Widen<T, kMayBeHigh>(above[r], pair, upper[r]);
        Form::template Widen<T, kMayBeHigh>(below[r], pair, lower[r]);
      }
      AddPair(x_at, pair, upper, lower);
    }
  }

  // The lane's part of row `row` of a box, whose scales are those of row `scale` there.
  __device__ typename Form::Part Load(uint32_t stage, int box, int row, int scale) const {
    return Form::Load(
        [&](int i) { return stage + Tile::ChunkOfRow(row, Form::kBoxChunks * box + i); },
        [&](int i) {
          const int group = (box * 64 + i * Form::kGroup) / Form::kGroup;
          return stage + Tile::kScalesAt + (group * Tile::kRows + scale) * Tile::kScaleSize;
        },
        lane % 4);
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
    PackedExpertKernel(const ExpertProduct p) {
  constexpr int kColumns = kIsGated ? Tile::kRows / 2 : Tile::kRows;  // of y
  extern __shared__ __align__(128) uint8_t shared[];
  BeginOverlapped();
  const ExpertPlaces places =
      FindPlaces<Tile::kTokens>(p.begins, p.num_experts, static_cast<int>(blockIdx.y));
  if (places.count == 0) return;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const uint32_t ring = SharedAddress(shared);
  const PackedCopies<T, Tile, kIsGated> copies(p, places, first_column);
  PackedSums<T, Tile, kIsGated> sums(places.count);
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

template <typename Form, typename T, typename Y, bool kIsGated>
Status LaunchPackedExperts(const ExpertProduct& p, CudaStream& stream) {
  using Tiles = PackedTiles<Form>;
  const auto launch = [&]<typename Tile>(std::type_identity<Tile>) -> Status {
    static SharedMemoryLimit shared_memory;
    RETURN_IF_ERROR(
        shared_memory.Raise(PackedExpertKernel<T, Y, Tile, kIsGated>, Tile::kSharedBytes, stream));
    return LaunchExpertTiles<Tile, kIsGated>(PackedExpertKernel<T, Y, Tile, kIsGated>, p, stream);
  };
  switch (TokensOfTile(p)) {
    case 8:
      return launch(std::type_identity<typename Tiles::Of8>());
    case 16:
      return launch(std::type_identity<typename Tiles::Of16>());
    case 32:
      return launch(std::type_identity<typename Tiles::Of32>());
    case 64:
      return launch(std::type_identity<typename Tiles::Of64>());
    default:
      return launch(std::type_identity<typename Tiles::Of128>());
  }
}

}  // namespace inflight::ops::cuda

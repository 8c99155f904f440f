// SPDX-License-Identifier: Apache-2.0
// Products of tokens and packed weights of their experts in the order of tensor cores
// (ops/tensor_core_order.h), float4, FP8 in groups or integers: expert_product.cuh's tiles, of
// which codes and scales pass through the ring and are widened in registers. Sums are those of the
// same weights rounded to 16 bits, bit by bit.
#pragma once

#include <algorithm>

#include "ops/cuda/expert_packed_forms.cuh"
#include "ops/cuda/expert_product.cuh"

namespace inflight::ops::cuda {

// kBoxes boxes are a stage: codes of rows, 128 bytes of a token for each 64 elements, and what
// groups have: scales [groups][kRows], then offsets likewise.
template <typename Form_, typename Tile, int kBoxes_, int kStages_>
struct PackedTile : Tile {
  using Form = Form_;
  using Scale = typename Form::Scale;
  using Groups = typename Form::Groups;
  static constexpr int kBoxes = kBoxes_;
  static constexpr int kStages = kStages_;
  static constexpr int kStepK = Form::kBoxElements * kBoxes;
  static constexpr int kRowChunks = Form::kBoxChunks * kBoxes;
  static constexpr int kRowBytes = Tile::kRows * kRowChunks * 16;
  static constexpr int kTokenBoxes = kStepK / 64;
  static constexpr int kTokenBoxBytes = Tile::kTokens * 128;
  static constexpr int kScalesAt = kRowBytes + kTokenBoxes * kTokenBoxBytes;
  static constexpr int kGroupBytes = Tile::kRows * static_cast<int>(sizeof(Scale));

  __host__ __device__ static constexpr int StageBytes(const Groups& groups) {
    return kScalesAt +
           groups.template PerStage<kStepK>() * kGroupBytes * (groups.has_offsets() ? 2 : 1);
  }

  static constexpr int kSharedBytes =
      kStages * (kScalesAt + Groups::MostScales(kStepK) * kGroupBytes);
  static_assert(kSharedBytes <=
                99 * 1024);  // what a CTA may have on compute capability 8.6 and 8.9

  __device__ static uint32_t ChunkOfRow(int row, int chunk) {
    return static_cast<uint32_t>(
        (row * kRowChunks + Form::template PlaceOf<kRowChunks>(row, chunk)) * 16);
  }
  // Chunk `chunk` of a box, and the scale and the offset of a group of the stage.
  __device__ static uint32_t ChunkOfRow(const PartPlace& at, int chunk) {
    return at.stage + ChunkOfRow(at.row, Form::kBoxChunks * at.box + chunk);
  }
  __device__ static uint32_t ScaleOfRow(const PartPlace& at, int group) {
    return at.stage + kScalesAt + group * kGroupBytes + at.scale * static_cast<int>(sizeof(Scale));
  }
  __device__ static uint32_t OffsetOfRow(const PartPlace& at, int group, const Groups& groups) {
    return ScaleOfRow(at, group + groups.template PerStage<kStepK>());
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
template <>
struct PackedTiles<IntegerExperts<Codes::kInt8>> {
  template <typename Tile, int kBoxes, int kStages>
  using Int8Tile = PackedTile<IntegerExperts<Codes::kInt8>, Tile, kBoxes, kStages>;
  using Of8 = Int8Tile<ExpertTile8, 2, 4>;
  using Of16 = Int8Tile<ExpertTile16, 2, 4>;
  using Of32 = Int8Tile<ExpertTile32, 2, 3>;
  using Of64 = Int8Tile<ExpertTile64, 1, 4>;
  using Of128 = Int8Tile<ExpertTile128, 1, 3>;
};
template <>
struct PackedTiles<IntegerExperts<Codes::kInt4>> {
  template <typename Tile, int kBoxes, int kStages>
  using Int4Tile = PackedTile<IntegerExperts<Codes::kInt4>, Tile, kBoxes, kStages>;
  using Of8 = Int4Tile<ExpertTile8, 2, 4>;
  using Of16 = Int4Tile<ExpertTile16, 2, 4>;
  using Of32 = Int4Tile<ExpertTile32, 1, 4>;
  using Of64 = Int4Tile<ExpertTile64, 1, 3>;
  using Of128 = Int4Tile<ExpertTile128, 1, 2>;
};

// What a thread copies of the scales, and of the offsets, of each stage: 16 bytes at a time.
template <typename Tile, bool kIsGated>
class ScaleCopies {
 public:
  __device__ ScaleCopies(const ExpertProduct& p, int64_t expert_row, int first_column,
                         const typename Tile::Groups& groups)
      : groups_(groups),
        num_groups_(groups.Of(static_cast<int>(p.k) - 1) + 1),
        num_chunks_(groups.template PerStage<Tile::kStepK>() * kColumnChunks),
        expert_row_(expert_row),
        first_column_(first_column),
        width_(p.width),
        scales_(Form::ScalesOf(p)),
        offsets_(reinterpret_cast<const uint8_t*>(p.w_offsets)) {}

  __device__ void Begin(uint32_t stage, int k) const {
    const int first_group = groups_.Of(k);
    for (int i = static_cast<int>(threadIdx.x); i < num_chunks_; i += Tile::kThreads) {
      const int of_group = i % kColumnChunks;
      const bool is_of_gate = kIsGated && of_group >= kColumnChunks / 2;
      const int column = first_column_ + of_group % kBranchChunks * kChunkScales;
      if (column >= width_) continue;
      const int group = first_group + i / kColumnChunks;
      const int64_t row = expert_row_ + (is_of_gate ? width_ : 0) + column;
      const int64_t at = ((row / kScalePanelRows * num_groups_ + group) * kScalePanelRows +
                          row % kScalePanelRows) *
                         kScaleSize;
      const bool is_used = group < num_groups_;
      const uint32_t to = stage + Tile::kScalesAt + i * 16;
      CopyAsync16(to, scales_ + (is_used ? at : 0), is_used);
      if (groups_.has_offsets())
        CopyAsync16(to + num_chunks_ * 16, offsets_ + (is_used ? at : 0), is_used);
    }
  }

 private:
  using Form = typename Tile::Form;
  using Groups = typename Tile::Groups;
  static constexpr int kScaleSize = sizeof(typename Tile::Scale);
  static constexpr int kChunkScales = 16 / kScaleSize;
  static constexpr int kColumnChunks = Tile::kRows / kChunkScales;  // of a group
  static constexpr int kBranchChunks = kIsGated ? kColumnChunks / 2 : kColumnChunks;

  Groups groups_;
  int num_groups_;  // of a row
  int num_chunks_;  // of a stage
  int64_t expert_row_;
  int first_column_, width_;
  const uint8_t *scales_, *offsets_;
};

// What a thread copies of each stage.
template <typename T, typename Tile, bool kIsGated>
class PackedCopies {
 public:
  __device__ PackedCopies(const ExpertProduct& p, const ExpertPlaces& places, int first_column,
                          const typename Tile::Groups& groups)
      : k_(static_cast<int>(p.k)),
        width_(p.width),
        count_(places.count),
        scales_(p, int64_t{places.expert} * p.width * (kIsGated ? 2 : 1), first_column, groups) {
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
    for (int b = 0; b < Tile::kTokenBoxes; b += kBoxesPerCopy) {
      const int at = k + (b + box_) * 64;
#pragma unroll
      for (int i = 0; i < kTokenCopies; ++i) {
        const int token = token_ + i * kTokensPerCopy;
        const bool is_used = at < k_ && token < count_;
        CopyAsync16(
            stage + Tile::kRowBytes + (b + box_) * Tile::kTokenBoxBytes + ChunkAt(token, piece_),
            is_used ? x_[i] + at : x_[i], is_used);
      }
    }
    scales_.Begin(stage, k);
  }

 private:
  using Form = typename Tile::Form;
  using Groups = typename Tile::Groups;
  static constexpr int kChunkElements = Form::kBoxElements / Form::kBoxChunks;
  __device__ int64_t RowBytes() const { return k_ / kChunkElements * 16; }

  static constexpr int kRowsPerCopy = Tile::kThreads / Tile::kRowChunks;
  static constexpr int kColumnsPerCopy = kIsGated ? kRowsPerCopy / 2 : kRowsPerCopy;
  static_assert(kRowsPerCopy % 16 == 0 && Tile::kRows % kRowsPerCopy == 0);
  static constexpr int kTokensPerCopy = Tile::kThreads / 8;
  static constexpr int kTokenCopies = std::max(1, Tile::kTokens / kTokensPerCopy);
  static constexpr int kBoxesPerCopy = std::max(1, kTokensPerCopy / Tile::kTokens);
  static_assert(Tile::kTokenBoxes % kBoxesPerCopy == 0);

  int k_, width_, count_;
  const uint8_t* w_;  // chunk `chunk_` of rows row_ + i * kRowsPerCopy of the tile
  int chunk_, row_, column_;
  const T* x_[kTokenCopies];  // piece `piece_` of tokens token_ + i * kTokensPerCopy
  int piece_, token_, box_;
  ScaleCopies<Tile, kIsGated> scales_;
};

// The sums of a warp's rows and tokens.
template <typename T, typename Tile, bool kIsGated>
struct PackedSums {
  float sum[Tile::kRowTiles][Tile::kTokenTiles][4] = {};
  int lane, warp_row, warp_token, count;
  typename Tile::Groups groups;

  __device__ PackedSums(int places, const typename Tile::Groups& of_scales)
      : lane(static_cast<int>(threadIdx.x) % 32),
        warp_row(static_cast<int>(threadIdx.x) / 32 % Tile::kWarpsOfRows * Tile::kRowTiles * 16),
        warp_token(static_cast<int>(threadIdx.x) / 32 / Tile::kWarpsOfRows * Tile::kTokenTiles * 8),
        count(places),
        groups(of_scales) {}

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
        const int below_scale = scale + (kIsGated ? Tile::kRows / 2 : 8);
        above[r] = Form::template Load<Tile>({stage, box, row, scale, lane % 4}, groups);
        below[r] = Form::template Load<Tile>({stage, box, row + 8, below_scale, lane % 4}, groups);
        is_high = is_high || Form::IsHigh(above[r]) || Form::IsHigh(below[r]);
      }
      const uint32_t x_at =
          stage + Tile::kRowBytes + box * (Form::kBoxElements / 64) * Tile::kTokenBoxBytes;
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
    for (int pair = 0; pair < Form::kBoxElements / 32; ++pair) {  // of steps of 16 elements
      uint32_t upper[Tile::kRowTiles][4], lower[Tile::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < Tile::kRowTiles; ++r) {
        Form::template Widen<T, Tile, kMayBeHigh>(above[r], pair, groups, upper[r]);
        Form::template Widen<T, Tile, kMayBeHigh>(below[r], pair, groups, lower[r]);
      }
      AddPair(x_at + pair / 2 * Tile::kTokenBoxBytes, pair % 2, upper, lower);
    }
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

// Adds up the sums of a CTA's places and of the columns of y from `first_column` on; `ring` is its
// shared memory.
template <typename T, typename Tile, bool kIsGated>
__device__ __forceinline__ void SumPacked(const ExpertProduct& p, const ExpertPlaces& places,
                                          int first_column, uint32_t ring,
                                          PackedSums<T, Tile, kIsGated>& sums) {
  const int stage_bytes = Tile::StageBytes(sums.groups);
  const PackedCopies<T, Tile, kIsGated> copies(p, places, first_column, sums.groups);
  const int num_boxes = static_cast<int>(p.k / Tile::Form::kBoxElements);
  const int num_steps = (num_boxes + Tile::kBoxes - 1) / Tile::kBoxes;
  for (int slot = 0; slot < Tile::kStages - 1; ++slot) {
    if (slot < num_steps) copies.Begin(ring + slot * stage_bytes, slot);
    CommitCopies();
  }
  int slot = 0;
  for (int step = 0; step < num_steps; ++step) {
    WaitForCopies<Tile::kStages - 2>();
    __syncthreads();
    const int next = step + Tile::kStages - 1;
    if (next < num_steps)
      copies.Begin(ring + (slot == 0 ? Tile::kStages - 1 : slot - 1) * stage_bytes, next);
    CommitCopies();
    sums.Add(ring + slot * stage_bytes, num_boxes - step * Tile::kBoxes);
    if (++slot == Tile::kStages) slot = 0;
  }
}

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
  PackedSums<T, Tile, kIsGated> sums(places.count, typename Tile::Groups(p));
  SumPacked(p, places, first_column, SharedAddress(shared), sums);
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
    return LaunchExpertTiles<Tile, kIsGated>(
        PackedExpertKernel<T, Y, Tile, kIsGated>, p,
        Tile::kStages * Tile::StageBytes(typename Tile::Groups(p)), stream);
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

// function.template operator()<Form>() for weights of `codes`.
template <typename Function>
Status WithPackedForm(DType codes, const Function& function) {
  switch (codes) {
    case DType::kI8:
      return function.template operator()<IntegerExperts<Codes::kInt8>>();
    case DType::kI4:
      return function.template operator()<IntegerExperts<Codes::kInt4>>();
    case DType::kF8E4M3:
      return function.template operator()<Fp8Experts>();
    default:
      return function.template operator()<Float4Experts>();
  }
}

}  // namespace inflight::ops::cuda

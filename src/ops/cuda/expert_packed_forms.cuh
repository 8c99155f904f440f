// SPDX-License-Identifier: Apache-2.0
// What the kernel of packed experts (expert_packed.cuh) must know of each form of their weights:
//
//   kBoxElements, kBoxChunks   of a row: a box, in elements and in chunks of 16 bytes
//   PlaceOf(row, chunk)        where a chunk lies among those of its row in shared memory: of 8
//   rows
//                              the same one is in different banks
//   Groups                     how many groups of scales a stage has, and which one an element is
//   of Part, Load, Widen          what a lane takes of a box of one row, its own elements of all
//   steps
//                              of 16, and two of these steps as pairs of 16 bits
#pragma once

#include <algorithm>

#include "ops/cuda/expert_product.cuh"
#include "ops/cuda/float4_halves.cuh"

namespace inflight::ops::cuda {

// Where a lane finds its part of a box: the stage, the box, its row of the weight, the row of its
// scales, and its quarter of 16 bytes.
struct PartPlace {
  uint32_t stage;
  int box, row, scale, quarter;
};

// Groups whose size is known where this is compiled.
template <int kSize>
struct FixedGroups {
  __device__ FixedGroups() = default;
  __host__ __device__ explicit FixedGroups(const ExpertProduct&) {}
  static constexpr bool has_offsets() { return false; }
  // Of a stage of kElements.
  template <int kElements>
  static constexpr int PerStage() {
    return std::max(1, kElements / kSize);
  }
  static constexpr int Of(int element) { return element / kSize; }
  // Scales and offsets of a row of a stage.
  static constexpr int MostScales(int elements) { return std::max(1, elements / kSize); }
};

// Of a power of two, or a whole row.
struct ShiftedGroups {
  static constexpr int kFewest = 16;  // elements

  __host__ __device__ explicit ShiftedGroups(const ExpertProduct& p)
      : shift(p.group_shift), with_offsets(p.w_offsets != nullptr) {}
  __host__ __device__ bool has_offsets() const { return with_offsets; }
  template <int kElements>
  __host__ __device__ int PerStage() const {
    const int groups = kElements >> shift;
    return groups < 1 ? 1 : groups;
  }
  __host__ __device__ int Of(int element) const { return element >> shift; }
  static constexpr int MostScales(int elements) { return 2 * elements / kFewest; }

  int shift;
  bool with_offsets;
};

struct Float4Experts {
  static constexpr int kBoxElements = 64;
  static constexpr int kBoxChunks = 2;
  static constexpr bool kHasHigh = true;
  using Groups = FixedGroups<kFloat4Unit>;
  using Scale = uint8_t;  // e8m0
  static __device__ const uint8_t* ScalesOf(const ExpertProduct& p) { return p.exponents; }

  template <int kRowChunks>
  static __device__ int PlaceOf(int row, int chunk) {
    constexpr int kRowsPerLine = 8 / kRowChunks;
    return chunk ^ (row / kRowsPerLine % kRowChunks);
  }

  struct Part {
    uint32_t words[2], exponents[2];  // of two groups
  };
  template <typename Tile>
  static __device__ Part Load(const PartPlace& at, const Groups& groups) {
    Part part;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      part.words[i] = LoadShared4(Tile::ChunkOfRow(at, i) + at.quarter * 4);
      part.exponents[i] = LoadSharedByte(Tile::ScaleOfRow(at, groups.Of(at.box * 64 + 32 * i)));
    }
    return part;
  }
  // Whether Widen must be told that a scale is high: seldom, so that a branch for all of a box
  // keeps others out of the way of its products.
  static __device__ bool IsHigh(const Part& part) {
    return max(part.exponents[0], part.exponents[1]) > kHighestOfOneStep;
  }
  template <typename T, typename Tile, bool kMayBeHigh>
  static __device__ void Widen(const Part& part, int pair, const Groups&, uint32_t (&pairs)[4]) {
    WidenFloat4<T, kMayBeHigh>(part.words[pair], part.exponents[pair], pairs);
  }
};

// A lane's 16 bytes of a slab, which a box then is.
template <Codes kCodes>
struct SlabExperts {
  static constexpr int kBoxElements = SlabElements(BitsOf(kCodes));
  static constexpr int kBoxChunks = 4;
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
};

struct Fp8Experts : SlabExperts<Codes::kFp8> {
  using Groups = FixedGroups<128>;
  struct Part {
    uint4 codes;
    float scale;
  };
  template <typename Tile>
  static __device__ Part Load(const PartPlace& at, const Groups& groups) {
    return {LoadShared16(Tile::ChunkOfRow(at, at.quarter)),
            LoadSharedFloat(Tile::ScaleOfRow(at, groups.Of(at.box * kBoxElements)))};
  }
  static __device__ bool IsHigh(const Part&) { return false; }
  template <typename T, typename Tile, bool kMayBeHigh>
  static __device__ void Widen(const Part& part, int pair, const Groups&, uint32_t (&pairs)[4]) {
    WidenTwoSteps<T, Codes::kFp8>(part.codes, pair, pairs);
#pragma unroll
    for (uint32_t& two : pairs) {
      const float2 values = UnpackTwo<T>(two);
      two = PackTwo<T>(values.x * part.scale, values.y * part.scale);
    }
  }
};

// int8 and int4, whose groups have any power of two of elements from 16 on, or are whole rows.
template <Codes kCodes>
struct IntegerExperts : SlabExperts<kCodes> {
  using Groups = ShiftedGroups;
  using SlabExperts<kCodes>::kBoxElements;
  struct Part {
    uint4 codes;
    PartPlace at;
  };
  template <typename Tile>
  static __device__ Part Load(const PartPlace& at, const Groups&) {
    return {LoadShared16(Tile::ChunkOfRow(at, at.quarter)), at};
  }
  static __device__ bool IsHigh(const Part&) { return false; }
  template <typename T, typename Tile, bool kMayBeHigh>
  static __device__ void Widen(const Part& part, int pair, const Groups& groups,
                               uint32_t (&pairs)[4]) {
    WidenTwoSteps<T, kCodes>(part.codes, pair, pairs);
    float scale = 0, offset = 0;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      if (step == 0 || groups.Of(Groups::kFewest) == 1) {
        const int group = groups.Of(part.at.box * kBoxElements + 32 * pair + 16 * step);
        scale = LoadSharedFloat(Tile::ScaleOfRow(part.at, group));
        if (groups.has_offsets())
          offset = LoadSharedFloat(Tile::OffsetOfRow(part.at, group, groups));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t& two = pairs[2 * step + i];
        const float2 values = UnpackTwo<T>(two);
        two = PackTwo<T>(fmaf(values.x, scale, offset), fmaf(values.y, scale, offset));
      }
    }
  }
};

}  // namespace inflight::ops::cuda

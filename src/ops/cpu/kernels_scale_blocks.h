// SPDX-License-Identifier: Apache-2.0
// Scales and offsets of groups out of blocks (tensor/scale_blocks.h) into float32, a few
// groups at a time. Included once by each translation unit that has integer operands, before
// kernels_grouped.h; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

INFLIGHT_INLINE void AskForBlock(const uint8_t* block, int64_t num_bytes) {
  for (int64_t i = 0; i < num_bytes; i += 64) __builtin_prefetch(block + i);
}

// Those of the groups of a pass, of whole blocks, [kMaxBlockGroups][64] each: they stay in the
// first-level cache.
struct ExpandedScales {
  alignas(64) float scales[kMaxBlockGroups * kPanelColumns];
  alignas(64) float offsets[kMaxBlockGroups * kPanelColumns];

  // Of blocks [begin, end) of a; asks memory for the next ones.
  void Fill(const PanelArgs& a, int64_t begin, int64_t end) {
    const int64_t num_bytes = a.block_bytes * kPanelColumns;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = (block - begin) * a.block_groups * kPanelColumns;
      const uint8_t* const of_scales = a.w_scale_blocks + block * num_bytes;
      AskForBlock(of_scales + (end - begin) * num_bytes, num_bytes);
      if (a.w_offset_blocks == nullptr) {
        for (int column = 0; column < kPanelColumns; column += 16)
          FillScales(of_scales + column, a.block_groups, first + column);
        continue;
      }
      const uint8_t* const of_offsets = a.w_offset_blocks + block * num_bytes;
      AskForBlock(of_offsets + (end - begin) * num_bytes, num_bytes);
      const Vec middle = Set1(static_cast<float>(a.middle));
      for (int column = 0; column < kPanelColumns; column += 16) {
        FillScales(of_scales + column, a.block_groups, first + column);
        FillOffsets(of_offsets + column, a.block_groups, middle, first + column);
      }
    }
  }

 private:
  // unit * int8 of the group `g` of sixteen columns of a block.
  INFLIGHT_INLINE static Vec ValueOf(Vec unit, const uint8_t* block, int groups, int g) {
    return groups == 1 ? unit : Mul(unit, LoadInt8(block + (kBlockUnitBytes + g) * kPanelColumns));
  }

  INFLIGHT_INLINE void FillScales(const uint8_t* block, int groups, int64_t at) {
    const Vec unit = LoadF16Bytes(block, block + kPanelColumns);
    for (int g = 0; g < groups; ++g)
      Store(scales + at + g * kPanelColumns, ValueOf(unit, block, groups, g));
  }

  INFLIGHT_INLINE void FillOffsets(const uint8_t* block, int groups, Vec middle, int64_t at) {
    const Vec unit = LoadF16Bytes(block, block + kPanelColumns);
    for (int g = 0; g < groups; ++g) {
      const int64_t place = at + g * kPanelColumns;
      Store(offsets + place, MulAdd(middle, Load(scales + place), ValueOf(unit, block, groups, g)));
    }
  }
};

}  // namespace
}  // namespace inflight::ops::cpu

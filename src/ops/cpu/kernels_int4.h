// SPDX-License-Identifier: Apache-2.0
// int4 weights times int8 activations, exact in int32. Included once by each translation unit that
// has MulAddNibbles and kNarrowProducts, which is what a lane of its sums holds where these have 16
// bits, else 0; after kernels_int8.h. All names have internal linkage.
//
// Weights are stored as w + 8, in [0, 15]: an unsigned operand for every instruction set, and so
// small that two products of bytes stay far below 16 bits. 8 times the row's sum comes off at the
// end.
#pragma once

namespace inflight::ops::cpu {
namespace {

constexpr int kNibbleOffset = 8;

struct I4Operand {
  using X = int8_t;
  using W = uint8_t;
  struct WideX {
    Quads first, second;  // k = 0 .. 3 and 4 .. 7 of the step
  };
  using WideW = Nibbles;
  static constexpr int kStep = 8;
  static constexpr int kStored = 4;
  static constexpr bool kHasHalfGroups = false;
  static constexpr bool kHasExponents = false;
  // A step adds four products of at most 15 * 127 to a lane of 16 bits.
  static constexpr int kNarrowSteps = kNarrowProducts / (4 * 15 * 127);
  static constexpr bool kHasParts = kHasFewRegisters;
  static constexpr int kMaxTileRows = kNibbleTileRows;
  INFLIGHT_INLINE static WideX LoadX(const X* p) {
    return {I8Operand::LoadX(p), I8Operand::LoadX(p + 4)};
  }
  INFLIGHT_INLINE static WideW LoadW(const W* p) { return LoadNibbles(p); }
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x) {
    return MulAddNibbles(sum, w, x.first, x.second);
  }
  template <int kIndex>
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x, StepPart<kIndex> part) {
    return MulAddNibbles(sum, w, kIndex == 0 ? x.first : x.second, part);
  }
};

void PanelInt4(const PanelArgs& a) { IntegerPanel<I4Operand, kNibbleOffset>(a); }

}  // namespace
}  // namespace inflight::ops::cpu

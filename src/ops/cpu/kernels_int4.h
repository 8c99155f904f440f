// SPDX-License-Identifier: Apache-2.0
// int4 weights times int8 activations, exact in int32. Included once by each translation unit that
// has MulAddNibbles, after kernels_int8.h; all names have internal linkage.
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
  static constexpr int kMaxTileRows = kNibbleTileRows;
  INFLIGHT_INLINE static WideX LoadX(const X* p) {
    return {I8Operand::LoadX(p), I8Operand::LoadX(p + 4)};
  }
  INFLIGHT_INLINE static WideW LoadW(const W* p) { return LoadNibbles(p); }
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x) {
    return MulAddNibbles(sum, w, x.first, x.second);
  }
};

void PanelInt4(const PanelArgs& a) { IntegerPanel<I4Operand, kNibbleOffset>(a); }

}  // namespace
}  // namespace inflight::ops::cpu

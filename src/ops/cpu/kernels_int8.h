// SPDX-License-Identifier: Apache-2.0
// int8 weights times int8 activations, exact in int32. Included once by each translation unit that
// has quads (LoadQuadWeights, MulAddQuads, kQuadTileRows, kQuadOffset), after kernels_panel.h; all
// names have internal linkage.
//
// Weights are stored as w + 128. What MulAddQuads adds up is (w + kQuadOffset) * x, so that
// kQuadOffset times the row's sum comes off at the end. Sums stay within 32 bits or wrap around
// and come back, since integer addition is modular.
#pragma once

namespace inflight::ops::cpu {
namespace {

struct I8Operand {
  using X = int8_t;
  using W = uint8_t;
  using WideX = Quads;
  using WideW = QuadWeights;
  static constexpr int kStep = 4;
  static constexpr int kStored = 4;
  static constexpr bool kHasHalfGroups = false;
  static constexpr int kMaxTileRows = kQuadTileRows;
  using UnalignedQuad [[gnu::aligned(1), gnu::may_alias]] = uint32_t;
  INFLIGHT_INLINE static WideX LoadX(const X* p) {
    return SetQuads(*reinterpret_cast<const UnalignedQuad*>(p));
  }
  INFLIGHT_INLINE static WideW LoadW(const W* p) { return LoadQuadWeights(p); }
  // `sum` holds int32 lanes: the tile only keeps and moves them.
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x) {
    return MulAddQuads(sum, w, x);
  }
};

// Integer sums of (w + offset) * x to what PanelArgs promises of them.
INFLIGHT_INLINE void ScaleSums(const PanelArgs& a, int32_t offset) {
  for (int r = 0; r < a.num_rows; ++r) {
    const Vec x_scale = Set1(a.x_scales[r]);
    for (int column = 0; column < a.num_columns; column += 16) {
      float* sums = a.sums + r * kPanelColumns + column;
      const int left = a.num_columns - column;
      const Vec w_scale = LoadFirst(a.w_scales + column, left < 16 ? left : 16);
      const Vec sum = IntegersMinus(Load(sums), offset * a.x_sums[r]);
      Store(sums, Mul(Mul(sum, w_scale), x_scale));
    }
  }
}

void PanelInt8(const PanelArgs& a) {
  Panel<I8Operand>(a);
  ScaleSums(a, kQuadOffset);
}

}  // namespace
}  // namespace inflight::ops::cpu

// SPDX-License-Identifier: Apache-2.0
// int8 weights times int8 activations, exact in int32. Included once by each translation unit that
// has quads (LoadQuadWeights, MulAddQuads, kQuadTileRows, kQuadOffset), after kernels_grouped.h;
// all names have internal linkage.
//
// Weights are stored as w + 128. What MulAddQuads adds up is (w + kQuadOffset) * x, so that
// kQuadOffset times the row's sum comes off at the end. Sums stay within 32 bits or wrap around
// and come back, since integer addition is modular.
#pragma once

#include "ops/cpu/kernels_scale.h"

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
  static constexpr bool kHasExponents = false;
  static constexpr int kNarrowSteps = 0;
  static constexpr bool kHasParts = false;
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

// `a`'s product, of (w + kOffset) * x, with groups or without.
template <typename Operand, int32_t kOffset>
INFLIGHT_INLINE void IntegerPanel(const PanelArgs& a) {
  if (a.group_size > 0) return GroupedPanel<Operand, kOffset>(a);
  Panel<Operand>(a);
  ScaleSums<kOffset>(a);
}

void PanelInt8(const PanelArgs& a) { IntegerPanel<I8Operand, kQuadOffset>(a); }

}  // namespace
}  // namespace inflight::ops::cpu

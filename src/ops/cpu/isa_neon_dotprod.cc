// SPDX-License-Identifier: Apache-2.0
// The kernels that SDOT makes different. Compiled with -march=armv8.2-a+dotprod; includes nothing
// whose inline functions others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_neon.h"

namespace inflight::ops::cpu {
namespace {

constexpr int kQuadTileRows = kTileRows;
constexpr int kQuadOffset = 0;

INFLIGHT_INLINE float32x4_t DotOf4(float32x4_t sum, int8x16_t w, Quads x) {
  return vreinterpretq_f32_s32(vdotq_s32(vreinterpretq_s32_f32(sum), w, x));
}

INFLIGHT_INLINE Vec MulAddQuads(Vec sum, QuadWeights w, Quads x) {
  return {DotOf4(sum.a, w.a, x), DotOf4(sum.b, w.b, x), DotOf4(sum.c, w.c, x),
          DotOf4(sum.d, w.d, x)};
}

// Twenty accumulators, the two quads of four weights, and of one x.
constexpr int kNibbleTileRows = 5;
constexpr int kNarrowProducts = 0;  // sums have 32 bits

INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x_first, Quads x_second) {
  return MulAddQuads(MulAddQuads(sum, w.first, x_first), w.second, x_second);
}

}  // namespace
}  // namespace inflight::ops::cpu

// clang-format off
#include "ops/cpu/kernels_tile.h"
#include "ops/cpu/kernels_panel.h"
#include "ops/cpu/kernels_scale_blocks.h"
#include "ops/cpu/kernels_grouped.h"
#include "ops/cpu/kernels_int8.h"
#include "ops/cpu/kernels_int4.h"
#include "ops/cpu/kernels_fp4.h"
// clang-format on

namespace inflight::ops::cpu {

void PanelInt8Dotprod(const PanelArgs& args) { PanelInt8(args); }
void PanelInt4Dotprod(const PanelArgs& args) { PanelInt4(args); }
void PanelFp4Dotprod(const PanelArgs& args) { PanelFp4(args); }

}  // namespace inflight::ops::cpu

// SPDX-License-Identifier: Apache-2.0
// The kernels that VPDPBUSD makes different. Compiled with the flags of isa_avx512.cc and
// -mavx512vnni; includes nothing whose inline functions others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx512.h"

namespace inflight::ops::cpu {
namespace {

constexpr int kQuadTileRows = kTileRows;
constexpr int kQuadOffset = 128;

using QuadWeights = __m512i;

INFLIGHT_INLINE QuadWeights LoadQuadWeights(const uint8_t* p) { return _mm512_load_si512(p); }

INFLIGHT_INLINE Vec MulAddQuads(Vec sum, QuadWeights w, Quads x) {
  return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(sum), w, x));
}

// Twenty accumulators, the two quads of four weights, and of one x.
constexpr int kNibbleTileRows = 5;
constexpr int kNarrowProducts = 0;  // sums have 32 bits

INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x_first, Quads x_second) {
  const __m512i one = _mm512_dpbusd_epi32(_mm512_castps_si512(sum), w.first, x_first);
  return _mm512_castsi512_ps(_mm512_dpbusd_epi32(one, w.second, x_second));
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

void PanelInt8Vnni(const PanelArgs& args) { PanelInt8(args); }
void PanelInt4Vnni(const PanelArgs& args) { PanelInt4(args); }
void PanelFp4Vnni(const PanelArgs& args) { PanelFp4(args); }

}  // namespace inflight::ops::cpu

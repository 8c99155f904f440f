// SPDX-License-Identifier: Apache-2.0
// The one kernel that VPDPBUSD makes different. Compiled with the flags of isa_avx512.cc and
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

}  // namespace
}  // namespace inflight::ops::cpu

// clang-format off
#include "ops/cpu/kernels_tile.h"
#include "ops/cpu/kernels_panel.h"
#include "ops/cpu/kernels_int8.h"
// clang-format on

namespace inflight::ops::cpu {

void PanelInt8Vnni(const PanelArgs& args) { PanelInt8(args); }

}  // namespace inflight::ops::cpu

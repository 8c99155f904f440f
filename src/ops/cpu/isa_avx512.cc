// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx512f -mavx512bw -mavx512dq -mavx512vl; includes nothing whose inline functions
// others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx512.h"

namespace inflight::ops::cpu {
namespace {

// Twenty accumulators, the even and odd halves of four weights, and of one x.
constexpr int kPairTileRows = 5;

// The even k first, then the odd: the order of kAvx2 too.
INFLIGHT_INLINE Vec MulAddPairs(Vec sum, Pairs w, Pairs x) {
  return MulAdd(OddOfPairs(w), OddOfPairs(x), MulAdd(EvenOfPairs(w), EvenOfPairs(x), sum));
}

constexpr int kQuadTileRows = 5;
constexpr int kQuadOffset = 0;

// As in isa_avx2.cc; the sign of w comes by a masked negation.
struct QuadWeights {
  __m512i magnitude;
  __mmask64 is_negative;
};

INFLIGHT_INLINE QuadWeights LoadQuadWeights(const uint8_t* p) {
  const __m512i w = _mm512_xor_si512(_mm512_load_si512(p), _mm512_set1_epi8(-128));
  return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
}

INFLIGHT_INLINE Vec MulAddQuads(Vec sum, QuadWeights w, Quads x) {
  const __m512i signed_x = _mm512_mask_sub_epi8(x, w.is_negative, _mm512_setzero_si512(), x);
  const __m512i pairs = _mm512_maddubs_epi16(w.magnitude, signed_x);
  const __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), quads));
}

// Twenty accumulators, the two quads of four weights, and of one x.
constexpr int kNibbleTileRows = 5;
constexpr int kNarrowProducts = 0;  // sums have 32 bits

// Four products of 15 * 127 in 16 bits.
INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x_first, Quads x_second) {
  const __m512i pairs = _mm512_add_epi16(_mm512_maddubs_epi16(w.first, x_first),
                                         _mm512_maddubs_epi16(w.second, x_second));
  const __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), quads));
}

}  // namespace
}  // namespace inflight::ops::cpu

// clang-format off
#include "ops/cpu/kernels_all.h"
#include "ops/cpu/kernels_scale_blocks.h"
#include "ops/cpu/kernels_grouped.h"
#include "ops/cpu/kernels_int8.h"
#include "ops/cpu/kernels_int4.h"
#include "ops/cpu/kernels_fp4.h"
// clang-format on

namespace inflight::ops::cpu {

constinit const KernelSet kAvx512 = KernelsWith("cpu/avx512", PanelInt8, PanelInt4, PanelFp4);

constinit const KernelSet kAvx512Vnni =
    KernelsWith("cpu/avx512_vnni", PanelInt8Vnni, PanelInt4Vnni, PanelFp4Vnni);

}  // namespace inflight::ops::cpu

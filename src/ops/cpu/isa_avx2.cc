// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2 -mfma -mf16c; includes nothing whose inline functions others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx2.h"

namespace inflight::ops::cpu {
namespace {

constexpr int kPairTileRows = kTileRows;

// The even k first, then the odd: the order of kAvx512 too.
INFLIGHT_INLINE Vec MulAddPairs(Vec sum, Pairs w, Pairs x) {
  return MulAdd(OddOfPairs(w), OddOfPairs(x), MulAdd(EvenOfPairs(w), EvenOfPairs(x), sum));
}

constexpr int kQuadTileRows = kTileRows;
constexpr int kQuadOffset = 0;

// VPMADDUBSW adds two products in 16 bits and saturates; |w| <= 128 as its unsigned operand and
// x in [-127, 127] with the sign of w stay within 2 * 128 * 127 = 32512.
struct QuadWeights {
  __m256i magnitude_lo, magnitude_hi;
  __m256i lo, hi;
};

INFLIGHT_INLINE QuadWeights LoadQuadWeights(const uint8_t* p) {
  const __m256i sign = _mm256_set1_epi8(-128);
  const __m256i lo = _mm256_xor_si256(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)), sign);
  const __m256i hi =
      _mm256_xor_si256(_mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32)), sign);
  return {_mm256_abs_epi8(lo), _mm256_abs_epi8(hi), lo, hi};
}

INFLIGHT_INLINE __m256 MulAddQuadsOf8(__m256 sum, __m256i magnitude, __m256i w, Quads x) {
  const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), quads));
}

INFLIGHT_INLINE Vec MulAddQuads(Vec sum, QuadWeights w, Quads x) {
  return {MulAddQuadsOf8(sum.lo, w.magnitude_lo, w.lo, x),
          MulAddQuadsOf8(sum.hi, w.magnitude_hi, w.hi, x)};
}

constexpr int kNibbleTileRows = kTileRows;

// Four products of 15 * 127 in 16 bits.
INFLIGHT_INLINE __m256 MulAddNibblesOf8(__m256 sum, __m256i first, __m256i second, Quads x_first,
                                        Quads x_second) {
  const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(first, x_first),
                                         _mm256_maddubs_epi16(second, x_second));
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), quads));
}

INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x_first, Quads x_second) {
  return {MulAddNibblesOf8(sum.lo, w.first_lo, w.second_lo, x_first, x_second),
          MulAddNibblesOf8(sum.hi, w.first_hi, w.second_hi, x_first, x_second)};
}

}  // namespace
}  // namespace inflight::ops::cpu

// clang-format off
#include "ops/cpu/kernels_all.h"
#include "ops/cpu/kernels_grouped.h"
#include "ops/cpu/kernels_int8.h"
#include "ops/cpu/kernels_int4.h"
#include "ops/cpu/kernels_fp4.h"
// clang-format on

namespace inflight::ops::cpu {

constinit const KernelSet kAvx2 = KernelsWith("cpu/avx2", PanelInt8, PanelInt4, PanelFp4);

}  // namespace inflight::ops::cpu

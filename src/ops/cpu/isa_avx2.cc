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

// Eight accumulators; a weight and its magnitude, x with the weight's sign, and ones.
constexpr int kQuadTileRows = 4;
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

constexpr int kNibbleTileRows = 4;

// MulAddNibbles adds to lanes of 16 bits, two for each column.
constexpr int kNarrowProducts = 32767;

// In this order: g++ adds products to each other before, and keeps more of them than there are
// registers.
INFLIGHT_INLINE __m256 AddProductsOf8(__m256 sum, __m256i w, Quads x) {
  const __m256i products = _mm256_maddubs_epi16(w, x);
  asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(products));
  return sum;
}

INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x, StepPart<0>) {
  return {AddProductsOf8(sum.lo, w.first_lo, x), AddProductsOf8(sum.hi, w.first_hi, x)};
}

INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x, StepPart<1>) {
  return {AddProductsOf8(sum.lo, w.second_lo, x), AddProductsOf8(sum.hi, w.second_hi, x)};
}

INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x_first, Quads x_second) {
  sum = {AddProductsOf8(sum.lo, w.first_lo, x_first), AddProductsOf8(sum.hi, w.first_hi, x_first)};
  return {AddProductsOf8(sum.lo, w.second_lo, x_second),
          AddProductsOf8(sum.hi, w.second_hi, x_second)};
}

INFLIGHT_INLINE __m256 AddNarrowOf8(__m256 sum, __m256 narrow) {
  const __m256i pairs = _mm256_madd_epi16(_mm256_castps_si256(narrow), _mm256_set1_epi16(1));
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), pairs));
}

INFLIGHT_INLINE Vec AddNarrow(Vec sum, Vec narrow) {
  return {AddNarrowOf8(sum.lo, narrow.lo), AddNarrowOf8(sum.hi, narrow.hi)};
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

constinit const KernelSet kAvx2 = KernelsWith("cpu/avx2", PanelInt8, PanelInt4, PanelFp4);

}  // namespace inflight::ops::cpu

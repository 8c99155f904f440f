// SPDX-License-Identifier: Apache-2.0
// Vec: sixteen float32 lanes, here one AVX-512 register. vec_avx2.h offers the same names, so that
// the kernels_*.h are written once. Included by translation units of that instruction set only; all
// names have internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define INFLIGHT_INLINE [[gnu::always_inline]] inline

namespace inflight::ops::cpu {
namespace {

// Else a step of pairs and nibbles is multiplied in two parts (kernels_tile.h).
constexpr bool kHasFewRegisters = false;
// Rows and 16-lane column groups of the register tile: 6 x 4 accumulators, 4 weights, 1 broadcast.
constexpr int kTileRows = 6;
constexpr int ColumnGroups(int) { return 4; }
// How far ahead of its reads a single tile asks memory: a page. The hardware's own prefetchers stop
// where a page ends; with few rows the panel is read faster than they start again. Measured on an
// Intel Xeon (bench/results/cpu-llama-3.2-1b.md): 2048 to 8192 all help, 4096 the most.
constexpr int64_t kAskAheadBytes = 4096;
// Rows whose float32 sums stay in registers beside int32 sums of a group of weights.
constexpr int kKeptRows = 3;

using Vec = __m512;
using Pairs = __m512i;  // sixteen pairs of bf16: the even k below, the odd above

INFLIGHT_INLINE __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1U << n) - 1U); }

INFLIGHT_INLINE Vec Zero() { return _mm512_setzero_ps(); }
INFLIGHT_INLINE Vec Set1(float x) { return _mm512_set1_ps(x); }
INFLIGHT_INLINE Vec Load(const float* p) { return _mm512_loadu_ps(p); }
INFLIGHT_INLINE Vec LoadFirst(const float* p, int n) {  // zeros above
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
INFLIGHT_INLINE void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
INFLIGHT_INLINE void StoreFirst(float* p, Vec v, int n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
}
INFLIGHT_INLINE Vec KeepFirst(Vec v, int n, Vec rest) {
  return _mm512_mask_mov_ps(rest, FirstLanes(n), v);
}

INFLIGHT_INLINE Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
INFLIGHT_INLINE Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
INFLIGHT_INLINE Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
INFLIGHT_INLINE Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
INFLIGHT_INLINE Vec MulAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
INFLIGHT_INLINE Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }  // b where either is NaN
INFLIGHT_INLINE Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }  // b where either is NaN
INFLIGHT_INLINE Vec Round(Vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INFLIGHT_INLINE Vec AddProduct(Vec sum, Vec a, Vec b) { return MulAdd(a, b, sum); }
INFLIGHT_INLINE Vec PowerOf2(Vec n) {  // 2^n for whole n in [-126, 127]
  const __m512i bias = _mm512_set1_epi32(127);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), bias), 23));
}
INFLIGHT_INLINE float Sum(Vec v) { return _mm512_reduce_add_ps(v); }
INFLIGHT_INLINE float Largest(Vec v) { return _mm512_reduce_max_ps(v); }

INFLIGHT_INLINE Vec LoadF16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Float16 whose low and high bytes lie apart.
INFLIGHT_INLINE Vec LoadF16Bytes(const uint8_t* low, const uint8_t* high) {
  const __m128i l = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(high));
  return _mm512_cvtph_ps(_mm256_set_m128i(_mm_unpackhi_epi8(l, h), _mm_unpacklo_epi8(l, h)));
}
INFLIGHT_INLINE Vec LoadInt8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
INFLIGHT_INLINE Vec LoadF16Half(const uint16_t* p) {  // eight lanes, zeros above
  return _mm512_cvtph_ps(
      _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
INFLIGHT_INLINE void StoreF16(uint16_t* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Rounds to nearest even, keeps NaN: the same bits as BFloat16::FromFloat for numbers.
INFLIGHT_INLINE void StoreBf16(uint16_t* p, Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
}

INFLIGHT_INLINE Vec LoadBf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
INFLIGHT_INLINE Pairs LoadPairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
INFLIGHT_INLINE Pairs LoadPairsHalf(const uint16_t* p) {  // eight pairs, zeros above
  return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
INFLIGHT_INLINE void StorePairs(uint16_t* p, Pairs v) { _mm512_storeu_si512(p, v); }
// Pairs of e4m3 as bf16, exactly; the code that is no number becomes one that is none.
INFLIGHT_INLINE Pairs PairsOfFp8(const uint8_t* p) {
  // m / 512, of codes below the normal numbers.
  alignas(64) static constexpr uint16_t kLeast[32] = {0,      0x3b00, 0x3b80, 0x3bc0,
                                                      0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const __m512i w = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i magnitude = _mm512_and_si512(w, _mm512_set1_epi16(0x7f));
  // The exponent's bias is 127 in place of 7.
  __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  bits =
      _mm512_mask_permutexvar_epi16(bits, _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8)),
                                    magnitude, _mm512_load_si512(kLeast));
  bits = _mm512_mask_mov_epi16(bits, _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f)),
                               _mm512_set1_epi16(0x7fc0));
  constexpr int kFirstOrBothOthers = 0xf8;
  return _mm512_ternarylogic_epi32(bits, w, _mm512_set1_epi16(INT16_MIN), kFirstOrBothOthers);
}
INFLIGHT_INLINE Pairs SetPairs(uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
INFLIGHT_INLINE Vec EvenOfPairs(Pairs v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
INFLIGHT_INLINE Vec OddOfPairs(Pairs v) {
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}

using Quads = __m512i;  // sixteen groups of four int8
INFLIGHT_INLINE Quads SetQuads(uint32_t quad) { return _mm512_set1_epi32(static_cast<int>(quad)); }
struct Nibbles {  // bytes in [0, 15]: the low and the high halves of stored ones
  __m512i first, second;
};
INFLIGHT_INLINE Nibbles LoadNibbles(const uint8_t* p) {
  const __m512i bytes = _mm512_load_si512(p);
  const __m512i mask = _mm512_set1_epi8(0x0f);
  return {_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask)};
}
// What `table` [16] has for each byte.
INFLIGHT_INLINE Nibbles LookUp(Nibbles v, const uint8_t* table) {
  const __m512i t = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(t, v.first), _mm512_shuffle_epi8(t, v.second)};
}
// 2^(e - 128): of e = 0 and 1 below the normal numbers.
INFLIGHT_INLINE Vec HalvesOfE8M0(const uint8_t* p) {
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i least = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), _mm512_min_epi32(e, one));
  return _mm512_castsi512_ps(
      _mm512_max_epi32(_mm512_slli_epi32(_mm512_sub_epi32(e, one), 23), least));
}
// Lanes that hold int32, less `minus`, as float32.
INFLIGHT_INLINE Vec IntegersMinus(Vec v, int32_t minus) {
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(minus)));
}
// Lanes that hold one int32.
INFLIGHT_INLINE Vec SetIntegers(int32_t n) { return _mm512_castsi512_ps(_mm512_set1_epi32(n)); }
// Lanes that hold int32 as float32.
INFLIGHT_INLINE Vec ToFloats(Vec v) { return _mm512_cvtepi32_ps(_mm512_castps_si512(v)); }

}  // namespace
}  // namespace inflight::ops::cpu

// SPDX-License-Identifier: Apache-2.0
// Vec: sixteen float32 lanes, here two AVX2 registers; the names of vec_avx512.h. Included by
// translation units of that instruction set only; all names have internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define INFLIGHT_INLINE [[gnu::always_inline]] inline

namespace inflight::ops::cpu {
namespace {

// Of sixteen registers twelve accumulate, so that two multiplications begin in each cycle; a column
// group takes two. The others hold one weight, and one x.
constexpr bool kHasFewRegisters = true;
constexpr int kTileRows = 6;
constexpr int ColumnGroups(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
// How far ahead of its reads a single tile asks memory. With few rows a panel is read faster than
// the hardware's own prefetchers follow. Measured on an AMD EPYC of Zen 2
// (bench/results/cpu-llama-3.2-1b.md): 512 to 1024 are best, 2048 to 16384 no better than none.
constexpr int64_t kAskAheadBytes = 768;
// Rows whose float32 sums stay in registers beside int32 sums of a group of weights.
constexpr int kKeptRows = 0;

struct Vec {
  __m256 lo, hi;
};
struct Pairs {  // sixteen pairs of bf16: the even k below, the odd above
  __m256i lo, hi;
};

INFLIGHT_INLINE __m256i FirstLanesOf8(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INFLIGHT_INLINE Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INFLIGHT_INLINE Vec Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INFLIGHT_INLINE Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INFLIGHT_INLINE Vec LoadFirst(const float* p, int n) {  // zeros above
  return {_mm256_maskload_ps(p, FirstLanesOf8(n)), _mm256_maskload_ps(p + 8, FirstLanesOf8(n - 8))};
}
INFLIGHT_INLINE void Store(float* p, Vec v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
INFLIGHT_INLINE void StoreFirst(float* p, Vec v, int n) {
  _mm256_maskstore_ps(p, FirstLanesOf8(n), v.lo);
  _mm256_maskstore_ps(p + 8, FirstLanesOf8(n - 8), v.hi);
}
INFLIGHT_INLINE Vec KeepFirst(Vec v, int n, Vec rest) {
  return {_mm256_blendv_ps(rest.lo, v.lo, _mm256_castsi256_ps(FirstLanesOf8(n))),
          _mm256_blendv_ps(rest.hi, v.hi, _mm256_castsi256_ps(FirstLanesOf8(n - 8)))};
}

INFLIGHT_INLINE Vec Add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
INFLIGHT_INLINE Vec Sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
INFLIGHT_INLINE Vec Mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
INFLIGHT_INLINE Vec Div(Vec a, Vec b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
INFLIGHT_INLINE Vec MulAdd(Vec a, Vec b, Vec c) {  // a b + c
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// sum + a * b where sums fill most registers: it stays in its own, which g++ gives to others.
INFLIGHT_INLINE __m256 AddProductOf8(__m256 sum, __m256 a, __m256 b) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
}
INFLIGHT_INLINE Vec AddProduct(Vec sum, Vec a, Vec b) {
  return {AddProductOf8(sum.lo, a.lo, b.lo), AddProductOf8(sum.hi, a.hi, b.hi)};
}
INFLIGHT_INLINE Vec Min(Vec a, Vec b) {  // b where either is NaN
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
INFLIGHT_INLINE Vec Max(Vec a, Vec b) {  // b where either is NaN
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
INFLIGHT_INLINE Vec Round(Vec v) {
  return {_mm256_round_ps(v.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(v.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
INFLIGHT_INLINE __m256 PowerOf2Of8(__m256 n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
INFLIGHT_INLINE Vec PowerOf2(Vec n) {  // 2^n for whole n in [-126, 127]
  return {PowerOf2Of8(n.lo), PowerOf2Of8(n.hi)};
}
INFLIGHT_INLINE float Sum(Vec v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INFLIGHT_INLINE float Largest(Vec v) {
  const __m256 eight = _mm256_max_ps(v.lo, v.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

INFLIGHT_INLINE __m256 LoadF16Of8(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
INFLIGHT_INLINE __m256 LoadBf16Of8(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
INFLIGHT_INLINE Vec LoadBf16(const uint16_t* p) { return {LoadBf16Of8(p), LoadBf16Of8(p + 8)}; }
INFLIGHT_INLINE Vec LoadF16(const uint16_t* p) { return {LoadF16Of8(p), LoadF16Of8(p + 8)}; }
// Float16 whose low and high bytes lie apart.
INFLIGHT_INLINE Vec LoadF16Bytes(const uint8_t* low, const uint8_t* high) {
  const __m128i l = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(high));
  return {_mm256_cvtph_ps(_mm_unpacklo_epi8(l, h)), _mm256_cvtph_ps(_mm_unpackhi_epi8(l, h))};
}
INFLIGHT_INLINE __m256 LoadInt8Of8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
INFLIGHT_INLINE Vec LoadInt8(const uint8_t* p) { return {LoadInt8Of8(p), LoadInt8Of8(p + 8)}; }
INFLIGHT_INLINE Vec LoadF16Half(const uint16_t* p) {  // eight lanes, zeros above
  return {LoadF16Of8(p), _mm256_setzero_ps()};
}
INFLIGHT_INLINE void StoreF16(uint16_t* p, Vec v) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, kRounding));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.hi, kRounding));
}
INFLIGHT_INLINE __m256i RoundToBf16Of8(__m256 v) {  // in the low half of each 32 bits
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
// Rounds to nearest even, keeps NaN: the same bits as BFloat16::FromFloat for numbers.
INFLIGHT_INLINE void StoreBf16(uint16_t* p, Vec v) {
  const __m256i packed = _mm256_packus_epi32(RoundToBf16Of8(v.lo), RoundToBf16Of8(v.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

INFLIGHT_INLINE Pairs LoadPairs(const uint16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
INFLIGHT_INLINE Pairs LoadPairsHalf(const uint16_t* p) {  // eight pairs, zeros above
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_setzero_si256()};
}
INFLIGHT_INLINE void StorePairs(uint16_t* p, Pairs v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), v.hi);
}
INFLIGHT_INLINE __m256i PairsOfFp8Of8(const uint8_t* p) {
  // The low bytes of m / 512, of codes below the normal numbers, and the high ones.
  alignas(16) static constexpr uint8_t kLeast[16] = {0, 0,    0x80, 0xc0, 0,    0x20, 0x40, 0x60,
                                                     0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c};
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kLeast)));
  const __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i magnitude = _mm256_and_si256(w, _mm256_set1_epi16(0x7f));
  // The exponent's bias is 127 in place of 7.
  const __m256i normal =
      _mm256_add_epi16(_mm256_slli_epi16(magnitude, 4), _mm256_set1_epi16(120 << 7));
  const __m256i m = _mm256_and_si256(w, _mm256_set1_epi16(7));
  const __m256i places =
      _mm256_or_si256(_mm256_or_si256(m, _mm256_slli_epi16(m, 8)), _mm256_set1_epi16(8 << 8));
  const __m256i bits = _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(table, places),
                                          _mm256_cmpgt_epi16(_mm256_set1_epi16(8), magnitude));
  const __m256i no_number = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)),
                                             _mm256_set1_epi16(0x7fc0));
  const __m256i sign = _mm256_and_si256(w, _mm256_set1_epi16(INT16_MIN));
  return _mm256_or_si256(_mm256_or_si256(bits, no_number), sign);
}
// Pairs of e4m3 as bf16, exactly; the code that is no number becomes one that is none.
INFLIGHT_INLINE Pairs PairsOfFp8(const uint8_t* p) {
  return {PairsOfFp8Of8(p), PairsOfFp8Of8(p + 16)};
}
INFLIGHT_INLINE Pairs SetPairs(uint32_t pair) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(pair));
  return {v, v};
}
INFLIGHT_INLINE Vec EvenOfPairs(Pairs v) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(v.lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(v.hi, 16))};
}
INFLIGHT_INLINE Vec OddOfPairs(Pairs v) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  return {_mm256_castsi256_ps(_mm256_and_si256(v.lo, mask)),
          _mm256_castsi256_ps(_mm256_and_si256(v.hi, mask))};
}

using Quads = __m256i;  // eight groups of four int8; both halves of a Vec multiply the same
INFLIGHT_INLINE Quads SetQuads(uint32_t quad) { return _mm256_set1_epi32(static_cast<int>(quad)); }
struct Nibbles {  // bytes in [0, 15]: the low and the high halves of stored ones
  __m256i first_lo, first_hi;
  __m256i second_lo, second_hi;
};
INFLIGHT_INLINE Nibbles LoadNibbles(const uint8_t* p) {
  const __m256i lo = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i hi = _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32));
  const __m256i mask = _mm256_set1_epi8(0x0f);
  return {_mm256_and_si256(lo, mask), _mm256_and_si256(hi, mask),
          _mm256_and_si256(_mm256_srli_epi16(lo, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(hi, 4), mask)};
}
// What `table` [16] has for each byte.
INFLIGHT_INLINE Nibbles LookUp(Nibbles v, const uint8_t* table) {
  const __m256i t =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, v.first_lo), _mm256_shuffle_epi8(t, v.first_hi),
          _mm256_shuffle_epi8(t, v.second_lo), _mm256_shuffle_epi8(t, v.second_hi)};
}
// 2^(e - 128): of e = 0 and 1 below the normal numbers.
INFLIGHT_INLINE __m256 HalvesOfE8M0Of8(const uint8_t* p) {
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i least = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), _mm256_min_epi32(e, one));
  return _mm256_castsi256_ps(
      _mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23), least));
}
INFLIGHT_INLINE Vec HalvesOfE8M0(const uint8_t* p) {
  return {HalvesOfE8M0Of8(p), HalvesOfE8M0Of8(p + 8)};
}
// Lanes that hold int32, less `minus`, as float32.
INFLIGHT_INLINE Vec IntegersMinus(Vec v, int32_t minus) {
  const __m256i m = _mm256_set1_epi32(minus);
  return {_mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_castps_si256(v.lo), m)),
          _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_castps_si256(v.hi), m))};
}
// Lanes that hold one int32.
INFLIGHT_INLINE Vec SetIntegers(int32_t n) {
  const __m256 v = _mm256_castsi256_ps(_mm256_set1_epi32(n));
  return {v, v};
}
// Lanes that hold int32 as float32.
INFLIGHT_INLINE Vec ToFloats(Vec v) {
  return {_mm256_cvtepi32_ps(_mm256_castps_si256(v.lo)),
          _mm256_cvtepi32_ps(_mm256_castps_si256(v.hi))};
}

}  // namespace
}  // namespace inflight::ops::cpu

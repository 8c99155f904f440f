// SPDX-License-Identifier: Apache-2.0
// Vec: sixteen float32 lanes, here four registers of AArch64's Advanced SIMD; the names of
// vec_avx512.h. Included by translation units of that instruction set only; all names have internal
// linkage.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#define INFLIGHT_INLINE [[gnu::always_inline]] inline

namespace inflight::ops::cpu {
namespace {

// Else a step of pairs and nibbles is multiplied in two parts (kernels_tile.h).
constexpr bool kHasFewRegisters = false;
// Of 32 registers 24 accumulate: a column group takes four, and four its weights.
constexpr int kTileRows = 6;
constexpr int ColumnGroups(int rows) { return rows == 1 ? 4 : 1; }
// How far ahead of its reads a single tile asks memory; not measured on such a processor.
constexpr int64_t kAskAheadBytes = 4096;
// Rows whose float32 sums stay in registers beside int32 sums of a group of weights.
constexpr int kKeptRows = 0;

struct Vec {
  float32x4_t a, b, c, d;
};
struct Pairs {  // sixteen pairs of bf16: the even k below, the odd above
  uint32x4_t a, b, c, d;
};

INFLIGHT_INLINE uint32x4_t FirstLanesOf4(int n) {
  constexpr int32_t kLanes[4] = {0, 1, 2, 3};
  return vcltq_s32(vld1q_s32(kLanes), vdupq_n_s32(n));
}
INFLIGHT_INLINE float32x4_t LoadFirstOf4(const float* p, int n) {
  if (n >= 4) return vld1q_f32(p);
  float lanes[4] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return vld1q_f32(lanes);
}
INFLIGHT_INLINE void StoreFirstOf4(float* p, float32x4_t v, int n) {
  if (n >= 4) return vst1q_f32(p, v);
  float lanes[4];
  vst1q_f32(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

INFLIGHT_INLINE Vec Set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
INFLIGHT_INLINE Vec Zero() { return Set1(0); }
INFLIGHT_INLINE Vec Load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
INFLIGHT_INLINE Vec LoadFirst(const float* p, int n) {  // zeros above
  return {LoadFirstOf4(p, n), LoadFirstOf4(p + 4, n - 4), LoadFirstOf4(p + 8, n - 8),
          LoadFirstOf4(p + 12, n - 12)};
}
INFLIGHT_INLINE void Store(float* p, Vec v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
  vst1q_f32(p + 8, v.c);
  vst1q_f32(p + 12, v.d);
}
INFLIGHT_INLINE void StoreFirst(float* p, Vec v, int n) {
  StoreFirstOf4(p, v.a, n);
  StoreFirstOf4(p + 4, v.b, n - 4);
  StoreFirstOf4(p + 8, v.c, n - 8);
  StoreFirstOf4(p + 12, v.d, n - 12);
}
INFLIGHT_INLINE Vec KeepFirst(Vec v, int n, Vec rest) {
  return {vbslq_f32(FirstLanesOf4(n), v.a, rest.a), vbslq_f32(FirstLanesOf4(n - 4), v.b, rest.b),
          vbslq_f32(FirstLanesOf4(n - 8), v.c, rest.c),
          vbslq_f32(FirstLanesOf4(n - 12), v.d, rest.d)};
}

INFLIGHT_INLINE Vec Add(Vec x, Vec y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}
INFLIGHT_INLINE Vec Sub(Vec x, Vec y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}
INFLIGHT_INLINE Vec Mul(Vec x, Vec y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}
INFLIGHT_INLINE Vec Div(Vec x, Vec y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}
INFLIGHT_INLINE Vec MulAdd(Vec x, Vec y, Vec z) {  // x y + z
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
          vfmaq_f32(z.d, x.d, y.d)};
}
INFLIGHT_INLINE Vec AddProduct(Vec sum, Vec x, Vec y) { return MulAdd(x, y, sum); }
INFLIGHT_INLINE float32x4_t MinOf4(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vcltq_f32(x, y), x, y);
}
INFLIGHT_INLINE float32x4_t MaxOf4(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vcgtq_f32(x, y), x, y);
}
INFLIGHT_INLINE Vec Min(Vec x, Vec y) {  // y where either is NaN
  return {MinOf4(x.a, y.a), MinOf4(x.b, y.b), MinOf4(x.c, y.c), MinOf4(x.d, y.d)};
}
INFLIGHT_INLINE Vec Max(Vec x, Vec y) {  // y where either is NaN
  return {MaxOf4(x.a, y.a), MaxOf4(x.b, y.b), MaxOf4(x.c, y.c), MaxOf4(x.d, y.d)};
}
INFLIGHT_INLINE Vec Round(Vec v) {
  return {vrndnq_f32(v.a), vrndnq_f32(v.b), vrndnq_f32(v.c), vrndnq_f32(v.d)};
}
INFLIGHT_INLINE float32x4_t PowerOf2Of4(float32x4_t n) {
  const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
  return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
}
INFLIGHT_INLINE Vec PowerOf2(Vec n) {  // 2^n for whole n in [-126, 127]
  return {PowerOf2Of4(n.a), PowerOf2Of4(n.b), PowerOf2Of4(n.c), PowerOf2Of4(n.d)};
}
INFLIGHT_INLINE float Sum(Vec v) {  // in the order of vec_avx2.h
  const float32x4_t four = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
INFLIGHT_INLINE float Largest(Vec v) {
  return vmaxvq_f32(MaxOf4(MaxOf4(v.a, v.c), MaxOf4(v.b, v.d)));
}

INFLIGHT_INLINE float32x4_t LoadF16Of4(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
INFLIGHT_INLINE float32x4_t LoadBf16Of4(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
INFLIGHT_INLINE Vec LoadBf16(const uint16_t* p) {
  return {LoadBf16Of4(p), LoadBf16Of4(p + 4), LoadBf16Of4(p + 8), LoadBf16Of4(p + 12)};
}
INFLIGHT_INLINE Vec LoadF16(const uint16_t* p) {
  return {LoadF16Of4(p), LoadF16Of4(p + 4), LoadF16Of4(p + 8), LoadF16Of4(p + 12)};
}
INFLIGHT_INLINE float32x4_t F16Of4(uint8x8_t bytes) {
  return vcvt_f32_f16(vreinterpret_f16_u8(bytes));
}
// Float16 whose low and high bytes lie apart.
INFLIGHT_INLINE Vec LoadF16Bytes(const uint8_t* low, const uint8_t* high) {
  const uint8x16x2_t v = vzipq_u8(vld1q_u8(low), vld1q_u8(high));
  return {F16Of4(vget_low_u8(v.val[0])), F16Of4(vget_high_u8(v.val[0])),
          F16Of4(vget_low_u8(v.val[1])), F16Of4(vget_high_u8(v.val[1]))};
}
INFLIGHT_INLINE Vec LoadInt8(const uint8_t* p) {
  const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(v));
  const int16x8_t high = vmovl_high_s8(v);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
          vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}
INFLIGHT_INLINE Vec LoadF16Half(const uint16_t* p) {  // eight lanes, zeros above
  return {LoadF16Of4(p), LoadF16Of4(p + 4), vdupq_n_f32(0), vdupq_n_f32(0)};
}
INFLIGHT_INLINE void StoreF16Of4(uint16_t* p, float32x4_t v) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
INFLIGHT_INLINE void StoreF16(uint16_t* p, Vec v) {
  StoreF16Of4(p, v.a);
  StoreF16Of4(p + 4, v.b);
  StoreF16Of4(p + 8, v.c);
  StoreF16Of4(p + 12, v.d);
}
INFLIGHT_INLINE void StoreBf16Of4(uint16_t* p, float32x4_t v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  const uint32x4_t is_number = vceqq_f32(v, v);
  vst1_u16(p, vshrn_n_u32(vbslq_u32(is_number, rounded, quiet), 16));
}
// Rounds to nearest even, keeps NaN: the same bits as BFloat16::FromFloat for numbers.
INFLIGHT_INLINE void StoreBf16(uint16_t* p, Vec v) {
  StoreBf16Of4(p, v.a);
  StoreBf16Of4(p + 4, v.b);
  StoreBf16Of4(p + 8, v.c);
  StoreBf16Of4(p + 12, v.d);
}

INFLIGHT_INLINE uint32x4_t LoadPairsOf4(const uint16_t* p) {
  return vreinterpretq_u32_u16(vld1q_u16(p));
}
INFLIGHT_INLINE Pairs LoadPairs(const uint16_t* p) {
  return {LoadPairsOf4(p), LoadPairsOf4(p + 8), LoadPairsOf4(p + 16), LoadPairsOf4(p + 24)};
}
INFLIGHT_INLINE Pairs LoadPairsHalf(const uint16_t* p) {  // eight pairs, zeros above
  return {LoadPairsOf4(p), LoadPairsOf4(p + 8), vdupq_n_u32(0), vdupq_n_u32(0)};
}
INFLIGHT_INLINE void StorePairs(uint16_t* p, Pairs v) {
  vst1q_u16(p, vreinterpretq_u16_u32(v.a));
  vst1q_u16(p + 8, vreinterpretq_u16_u32(v.b));
  vst1q_u16(p + 16, vreinterpretq_u16_u32(v.c));
  vst1q_u16(p + 24, vreinterpretq_u16_u32(v.d));
}
INFLIGHT_INLINE uint32x4_t PairsOfFp8Of4(const uint8_t* p) {
  // The low bytes of m / 512, of codes below the normal numbers, and the high ones.
  alignas(16) static constexpr uint8_t kLeast[16] = {0, 0,    0x80, 0xc0, 0,    0x20, 0x40, 0x60,
                                                     0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c};
  const uint16x8_t w = vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(vld1_u8(p))));
  const uint16x8_t magnitude = vandq_u16(w, vdupq_n_u16(0x7f));
  // The exponent's bias is 127 in place of 7.
  const uint16x8_t normal = vaddq_u16(vshlq_n_u16(magnitude, 4), vdupq_n_u16(120 << 7));
  const uint16x8_t m = vandq_u16(w, vdupq_n_u16(7));
  const uint16x8_t places = vorrq_u16(vorrq_u16(m, vshlq_n_u16(m, 8)), vdupq_n_u16(8 << 8));
  const uint16x8_t least =
      vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(kLeast), vreinterpretq_u8_u16(places)));
  const uint16x8_t bits = vbslq_u16(vcltq_u16(magnitude, vdupq_n_u16(8)), least, normal);
  const uint16x8_t no_number =
      vandq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x7f)), vdupq_n_u16(0x7fc0));
  const uint16x8_t sign = vandq_u16(w, vdupq_n_u16(0x8000));
  return vreinterpretq_u32_u16(vorrq_u16(vorrq_u16(bits, no_number), sign));
}
// Pairs of e4m3 as bf16, exactly; the code that is no number becomes one that is none.
INFLIGHT_INLINE Pairs PairsOfFp8(const uint8_t* p) {
  return {PairsOfFp8Of4(p), PairsOfFp8Of4(p + 8), PairsOfFp8Of4(p + 16), PairsOfFp8Of4(p + 24)};
}
INFLIGHT_INLINE Pairs SetPairs(uint32_t pair) {
  const uint32x4_t v = vdupq_n_u32(pair);
  return {v, v, v, v};
}
INFLIGHT_INLINE float32x4_t EvenOf4(uint32x4_t v) {
  return vreinterpretq_f32_u32(vshlq_n_u32(v, 16));
}
INFLIGHT_INLINE float32x4_t OddOf4(uint32x4_t v) {
  return vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000U)));
}
INFLIGHT_INLINE Vec EvenOfPairs(Pairs v) {
  return {EvenOf4(v.a), EvenOf4(v.b), EvenOf4(v.c), EvenOf4(v.d)};
}
INFLIGHT_INLINE Vec OddOfPairs(Pairs v) {
  return {OddOf4(v.a), OddOf4(v.b), OddOf4(v.c), OddOf4(v.d)};
}

using Quads = int8x16_t;  // four groups of four int8; all parts of a Vec multiply the same
INFLIGHT_INLINE Quads SetQuads(uint32_t quad) { return vreinterpretq_s8_u32(vdupq_n_u32(quad)); }
struct QuadWeights {  // sixteen groups of four int8
  int8x16_t a, b, c, d;
};
// They are stored as w + 128, which differs from w in the highest bit.
INFLIGHT_INLINE int8x16_t LoadQuadWeightsOf4(const uint8_t* p) {
  return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80)));
}
INFLIGHT_INLINE QuadWeights LoadQuadWeights(const uint8_t* p) {
  return {LoadQuadWeightsOf4(p), LoadQuadWeightsOf4(p + 16), LoadQuadWeightsOf4(p + 32),
          LoadQuadWeightsOf4(p + 48)};
}
struct Nibbles {  // bytes in [0, 15]: the low and the high halves of stored ones
  QuadWeights first, second;
};
INFLIGHT_INLINE int8x16_t LowOf16(uint8x16_t v) {
  return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(0x0f)));
}
INFLIGHT_INLINE int8x16_t HighOf16(uint8x16_t v) { return vreinterpretq_s8_u8(vshrq_n_u8(v, 4)); }
INFLIGHT_INLINE Nibbles LoadNibbles(const uint8_t* p) {
  const uint8x16_t a = vld1q_u8(p);
  const uint8x16_t b = vld1q_u8(p + 16);
  const uint8x16_t c = vld1q_u8(p + 32);
  const uint8x16_t d = vld1q_u8(p + 48);
  return {{LowOf16(a), LowOf16(b), LowOf16(c), LowOf16(d)},
          {HighOf16(a), HighOf16(b), HighOf16(c), HighOf16(d)}};
}
INFLIGHT_INLINE float32x4_t ToFloatsOf4(float32x4_t v, int32_t minus) {
  return vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_f32(v), vdupq_n_s32(minus)));
}
// What `table` [16] has for each byte.
INFLIGHT_INLINE int8x16_t LookUpOf16(uint8x16_t table, int8x16_t v) {
  return vreinterpretq_s8_u8(vqtbl1q_u8(table, vreinterpretq_u8_s8(v)));
}
INFLIGHT_INLINE QuadWeights LookUpQuads(uint8x16_t table, QuadWeights v) {
  return {LookUpOf16(table, v.a), LookUpOf16(table, v.b), LookUpOf16(table, v.c),
          LookUpOf16(table, v.d)};
}
INFLIGHT_INLINE Nibbles LookUp(Nibbles v, const uint8_t* table) {
  const uint8x16_t t = vld1q_u8(table);
  return {LookUpQuads(t, v.first), LookUpQuads(t, v.second)};
}
// 2^(e - 128): of e = 0 and 1 below the normal numbers.
INFLIGHT_INLINE float32x4_t HalvesOfE8M0Of4(uint16x4_t exponents) {
  const int32x4_t one = vdupq_n_s32(1);
  const int32x4_t e = vreinterpretq_s32_u32(vmovl_u16(exponents));
  const int32x4_t least = vshlq_s32(vdupq_n_s32(0x00200000), vminq_s32(e, one));
  return vreinterpretq_f32_s32(vmaxq_s32(vshlq_n_s32(vsubq_s32(e, one), 23), least));
}
INFLIGHT_INLINE Vec HalvesOfE8M0(const uint8_t* p) {
  const uint8x16_t e = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(e));
  const uint16x8_t high = vmovl_high_u8(e);
  return {HalvesOfE8M0Of4(vget_low_u16(low)), HalvesOfE8M0Of4(vget_high_u16(low)),
          HalvesOfE8M0Of4(vget_low_u16(high)), HalvesOfE8M0Of4(vget_high_u16(high))};
}
// Lanes that hold int32, less `minus`, as float32.
INFLIGHT_INLINE Vec IntegersMinus(Vec v, int32_t minus) {
  return {ToFloatsOf4(v.a, minus), ToFloatsOf4(v.b, minus), ToFloatsOf4(v.c, minus),
          ToFloatsOf4(v.d, minus)};
}
// Lanes that hold one int32.
INFLIGHT_INLINE Vec SetIntegers(int32_t n) {
  const float32x4_t v = vreinterpretq_f32_s32(vdupq_n_s32(n));
  return {v, v, v, v};
}
// Lanes that hold int32 as float32.
INFLIGHT_INLINE Vec ToFloats(Vec v) { return IntegersMinus(v, 0); }

}  // namespace
}  // namespace inflight::ops::cpu

// SPDX-License-Identifier: Apache-2.0
// Advanced SIMD as every AArch64 processor has it; includes nothing whose inline functions others
// use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_neon.h"

namespace inflight::ops::cpu {
namespace {

// Twenty accumulators, the even and odd halves of four weights, and of one x.
constexpr int kPairTileRows = 5;

// The even k first, then the odd: the order of kAvx2.
INFLIGHT_INLINE Vec MulAddPairs(Vec sum, Pairs w, Pairs x) {
  return MulAdd(OddOfPairs(w), OddOfPairs(x), MulAdd(EvenOfPairs(w), EvenOfPairs(x), sum));
}

constexpr int kQuadTileRows = kTileRows;
constexpr int kQuadOffset = 0;

// Products of the first eight and of the other eight bytes, in 16 bits, as sums of four in 32.
INFLIGHT_INLINE float32x4_t AddQuads(float32x4_t sum, int16x8_t low, int16x8_t high) {
  return vreinterpretq_f32_s32(vpadalq_s16(vreinterpretq_s32_f32(sum), vpaddq_s16(low, high)));
}

// Two products of |w| <= 128 and |x| <= 127 are at most 32512.
INFLIGHT_INLINE float32x4_t MulAddQuadsOf4(float32x4_t sum, int8x16_t w, Quads x) {
  return AddQuads(sum, vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
}

INFLIGHT_INLINE Vec MulAddQuads(Vec sum, QuadWeights w, Quads x) {
  return {MulAddQuadsOf4(sum.a, w.a, x), MulAddQuadsOf4(sum.b, w.b, x),
          MulAddQuadsOf4(sum.c, w.c, x), MulAddQuadsOf4(sum.d, w.d, x)};
}

// Sixteen accumulators, the two quads of four weights and of one x, and products.
constexpr int kNibbleTileRows = 4;
constexpr int kNarrowProducts = 0;  // sums have 32 bits

// Four products of 15 * 127 in 16 bits.
INFLIGHT_INLINE float32x4_t MulAddNibblesOf4(float32x4_t sum, int8x16_t first, int8x16_t second,
                                             Quads x_first, Quads x_second) {
  const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(first), vget_low_s8(x_first)),
                                 vget_low_s8(second), vget_low_s8(x_second));
  const int16x8_t high = vmlal_high_s8(vmull_high_s8(first, x_first), second, x_second);
  return AddQuads(sum, low, high);
}

INFLIGHT_INLINE Vec MulAddNibbles(Vec sum, Nibbles w, Quads x_first, Quads x_second) {
  return {MulAddNibblesOf4(sum.a, w.first.a, w.second.a, x_first, x_second),
          MulAddNibblesOf4(sum.b, w.first.b, w.second.b, x_first, x_second),
          MulAddNibblesOf4(sum.c, w.first.c, w.second.c, x_first, x_second),
          MulAddNibblesOf4(sum.d, w.first.d, w.second.d, x_first, x_second)};
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

constinit const KernelSet kNeon = KernelsWith("cpu/neon", PanelInt8, PanelInt4, PanelFp4);

constinit const KernelSet kNeonDotprod =
    KernelsWith("cpu/neon_dotprod", PanelInt8Dotprod, PanelInt4Dotprod, PanelFp4Dotprod);

}  // namespace inflight::ops::cpu

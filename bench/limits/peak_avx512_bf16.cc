// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakBf16Avx512(int64_t rounds, float* sink) {
  constexpr int kChains = 24;
  __m512 sum[kChains];
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_setzero_ps();
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003e80));  // 0.5, 0.25
  const auto b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3e803f00));
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c)
    asm volatile("" : "+v"(sum[c]));  // or the compiler sees that all chains are equal
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_dpbf16_ps(sum[c], a, b);
  }
#pragma GCC unroll 24
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  *sink = _mm512_cvtss_f32(sum[0]);
  return 4.0 * 16 * kChains * static_cast<double>(rounds);
}

}  // namespace inflight::bench

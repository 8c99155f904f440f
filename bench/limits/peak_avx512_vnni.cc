// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakInt8Avx512(int64_t rounds, float* sink) {
  constexpr int kChains = 24;
  __m512i sum[kChains];
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(-2);
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c)
    asm volatile("" : "+v"(sum[c]));  // or the compiler sees that all chains are equal
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_dpbusd_epi32(sum[c], a, b);
  }
#pragma GCC unroll 24
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_epi32(sum[0], sum[c]);
  *sink = _mm512_cvtss_f32(_mm512_castsi512_ps(sum[0]));
  return 8.0 * 16 * kChains * static_cast<double>(rounds);
}

}  // namespace inflight::bench

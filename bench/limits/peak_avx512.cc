// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakFmaAvx512(int64_t rounds, float* sink) {
  constexpr int kChains = 24;
  __m512 sum[kChains];
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(0.5F);
  const __m512 b = _mm512_set1_ps(0.25F);
#pragma GCC unroll 24
  for (int c = 0; c < kChains; ++c)
    asm volatile("" : "+v"(sum[c]));  // or the compiler sees that all chains are equal
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_fmadd_ps(a, b, sum[c]);
  }
#pragma GCC unroll 24
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  *sink = _mm512_cvtss_f32(sum[0]);
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

float ReadAvx512(const char* data, int64_t bytes) {
  constexpr int kStreams = 8;
  __m512 sum[kStreams];
#pragma GCC unroll 8
  for (int s = 0; s < kStreams; ++s) sum[s] = _mm512_setzero_ps();
  for (int64_t i = 0; i < bytes; i += kStreams * 64) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const char* at = data + i + s * 64;
      __builtin_prefetch(at + 4096);
      sum[s] = _mm512_add_ps(sum[s], _mm512_load_ps(reinterpret_cast<const float*>(at)));
    }
  }
#pragma GCC unroll 8
  for (int s = 1; s < kStreams; ++s) sum[0] = _mm512_add_ps(sum[0], sum[s]);
  return _mm512_cvtss_f32(sum[0]);
}

}  // namespace inflight::bench

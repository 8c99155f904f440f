// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakFmaAvx2(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  __m256 sum[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sum[c] = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(0.5F);
  const __m256 b = _mm256_set1_ps(0.25F);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c)
    asm volatile("" : "+x"(sum[c]));  // or the compiler sees that all chains are equal
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm256_fmadd_ps(a, b, sum[c]);
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_ps(sum[0], sum[c]);
  *sink = _mm256_cvtss_f32(sum[0]);
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

float ReadAvx2(const char* data, int64_t bytes) {
  constexpr int kStreams = 8;
  __m256 sum[kStreams];
#pragma GCC unroll 8
  for (int s = 0; s < kStreams; ++s) sum[s] = _mm256_setzero_ps();
  for (int64_t i = 0; i < bytes; i += kStreams * 32) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const char* at = data + i + s * 32;
      __builtin_prefetch(at + 4096);
      sum[s] = _mm256_add_ps(sum[s], _mm256_load_ps(reinterpret_cast<const float*>(at)));
    }
  }
#pragma GCC unroll 8
  for (int s = 1; s < kStreams; ++s) sum[0] = _mm256_add_ps(sum[0], sum[s]);
  return _mm256_cvtss_f32(sum[0]);
}

}  // namespace inflight::bench

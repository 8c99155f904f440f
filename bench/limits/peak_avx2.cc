// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/chains.h"
#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakFmaAvx2(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  const __m256 a = _mm256_set1_ps(0.5F);
  const __m256 b = _mm256_set1_ps(0.25F);
  *sink = RunChains<kChains>(rounds, _mm256_setzero_ps(),
                             [=](__m256 sum) { return _mm256_fmadd_ps(a, b, sum); });
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

float ReadAvx2(const char* data, int64_t bytes) {
  return ReadVectors(data, bytes, _mm256_setzero_ps());
}

}  // namespace inflight::bench

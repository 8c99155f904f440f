// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/chains.h"
#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakFmaAvx512(int64_t rounds, float* sink) {
  constexpr int kChains = 24;
  const __m512 a = _mm512_set1_ps(0.5F);
  const __m512 b = _mm512_set1_ps(0.25F);
  *sink = RunChains<kChains>(rounds, _mm512_setzero_ps(),
                             [=](__m512 sum) { return _mm512_fmadd_ps(a, b, sum); });
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

float ReadAvx512(const char* data, int64_t bytes) {
  return ReadVectors(data, bytes, _mm512_setzero_ps());
}

}  // namespace inflight::bench

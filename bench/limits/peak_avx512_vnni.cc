// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/chains.h"
#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakInt8Avx512(int64_t rounds, float* sink) {
  constexpr int kChains = 24;
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(-2);
  *sink = RunChains<kChains>(rounds, _mm512_setzero_si512(),
                             [=](__m512i sum) { return _mm512_dpbusd_epi32(sum, a, b); });
  return 8.0 * 16 * kChains * static_cast<double>(rounds);
}

}  // namespace inflight::bench

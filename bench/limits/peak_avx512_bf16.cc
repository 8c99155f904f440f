// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/limits/chains.h"
#include "bench/limits/peak.h"

namespace inflight::bench {

double PeakBf16Avx512(int64_t rounds, float* sink) {
  constexpr int kChains = 24;
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003e80));  // 0.5, 0.25
  const auto b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3e803f00));
  *sink = RunChains<kChains>(rounds, _mm512_setzero_ps(),
                             [=](__m512 sum) { return _mm512_dpbf16_ps(sum, a, b); });
  return 4.0 * 16 * kChains * static_cast<double>(rounds);
}

}  // namespace inflight::bench

// SPDX-License-Identifier: Apache-2.0
#include "bench/limits/chains.h"
#include "bench/limits/peak.h"

namespace inflight::bench {

using Vec4 [[gnu::vector_size(16)]] = float;

double PeakFmaBaseline(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  const Vec4 a = {1.0F, 0.5F, 0.25F, 0.125F};
  *sink = RunChains<kChains>(rounds, Vec4{}, [a, b = a](Vec4 sum) mutable {
    asm volatile("" : "+x"(b));  // not a constant, so that the products are computed
    return sum + a * b;
  });
  return 2.0 * 4 * kChains * static_cast<double>(rounds);
}

float ReadBaseline(const char* data, int64_t bytes) { return ReadVectors(data, bytes, Vec4{}); }

}  // namespace inflight::bench

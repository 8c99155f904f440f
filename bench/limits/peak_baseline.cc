// SPDX-License-Identifier: Apache-2.0
#include "bench/limits/peak.h"

namespace inflight::bench {

using Vec4 [[gnu::vector_size(16)]] = float;

double PeakFmaBaseline(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  Vec4 sum[kChains] = {};
  const Vec4 a = {1.0F, 0.5F, 0.25F, 0.125F};
  Vec4 b = a;
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c)
    asm volatile("" : "+x"(sum[c]));  // or the compiler sees that all chains are equal
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(b));  // not a constant, so that the products are computed
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] += a * b;
  }
  Vec4 total = sum[0];
  for (int c = 1; c < kChains; ++c) total += sum[c];
  *sink = total[0];
  return 2.0 * 4 * kChains * static_cast<double>(rounds);
}

float ReadBaseline(const char* data, int64_t bytes) {
  constexpr int kStreams = 8;
  Vec4 sum[kStreams];
#pragma GCC unroll 8
  for (int s = 0; s < kStreams; ++s) sum[s] = Vec4{};
  for (int64_t i = 0; i < bytes; i += kStreams * 16) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const char* at = data + i + s * 16;
      __builtin_prefetch(at + 4096);
      sum[s] = sum[s] + *reinterpret_cast<const Vec4*>(at);
    }
  }
#pragma GCC unroll 8
  for (int s = 1; s < kStreams; ++s) sum[0] = sum[0] + sum[s];
  return sum[0][0];
}

}  // namespace inflight::bench

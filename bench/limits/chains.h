// SPDX-License-Identifier: Apache-2.0
// What every peak_*.cc does with its own vectors. Included by one translation unit per instruction
// set: all names have internal linkage.
#pragma once

#include <cstdint>

namespace inflight::bench {
namespace {

// `rounds` times sum = step(sum), on kChains sums in turn that stay in registers. Returns something
// that depends on all of them.
template <int kChains, typename Vec, typename Step>
float RunChains(int64_t rounds, Vec zero, Step step) {
  Vec sum[kChains];
#pragma GCC unroll 32
  for (int c = 0; c < kChains; ++c) {
    asm volatile("" : "+m"(zero));  // or the compiler sees that all chains are equal
    sum[c] = zero;
  }
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) sum[c] = step(sum[c]);
  }
#pragma GCC unroll 32
  for (int c = 1; c < kChains; ++c) sum[0] += sum[c];
  return static_cast<float>(sum[0][0]);
}

// Adds up `bytes` from `data` on, eight vectors at a time.
template <typename Vec>
float ReadVectors(const char* data, int64_t bytes, Vec zero) {
  constexpr int kStreams = 8;
  Vec sum[kStreams];
#pragma GCC unroll 8
  for (int s = 0; s < kStreams; ++s) sum[s] = zero;
  for (int64_t i = 0; i < bytes; i += kStreams * int64_t{sizeof(Vec)}) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      const char* at = data + i + s * int64_t{sizeof(Vec)};
      __builtin_prefetch(at + 4096);
      sum[s] += *reinterpret_cast<const Vec*>(at);
    }
  }
#pragma GCC unroll 8
  for (int s = 1; s < kStreams; ++s) sum[0] += sum[s];
  return sum[0][0];
}

}  // namespace
}  // namespace inflight::bench

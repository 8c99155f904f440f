// SPDX-License-Identifier: Apache-2.0
// Random weights for benchmarks: the numbers of a counter, so that any part can be made anywhere.
#pragma once

#include <cstdint>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace inflight::ops {

// SplitMix64's mixer, a bijection of 64 bits.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Number `at` of a stream, uniform in (-bound, bound), of 16 bits. Four come from each counter.
constexpr float UniformAt(uint64_t stream, uint64_t at, float bound) {
  const uint64_t bits = MixBits(stream ^ (at / 4)) >> (16 * (at % 4));
  return (static_cast<float>(bits & 0xffffU) - 32767.5F) * (bound / 32768.0F);
}

// Numbers [0, n) of a stream on a GPU, rounded to `dtype`: f32 | f16 | bf16 | f8e4m3 to nearest
// even, i8 and i4 (of even n) downwards; f4e2m1 (of even n) gets all codes, whatever the bound.
// Returns once it is enqueued on the default stream.
struct FillUniformParams {
  void* data = nullptr;  // [n] device or pinned host memory, 16-byte aligned
  DType dtype = DType::kBF16;
  int64_t n = 0;
  float bound = 1;
  uint64_t stream = 0;
};
Status FillUniformOnGpu(const FillUniformParams& params, Device& device);

}  // namespace inflight::ops

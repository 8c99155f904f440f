// SPDX-License-Identifier: Apache-2.0
// What warps do together: sums, the largest, running sums, and the search in a histogram.
#pragma once

#include <cstdint>

namespace inflight::decoding {

constexpr int kNumBins = 256;

struct FoundBin {
  int bin;          // -1: the target is beyond all
  uint32_t count;   // tokens in it
  uint64_t before;  // count or mass of the bins before it
};

// Of values below 2^51.
__device__ inline uint64_t WarpSum(uint64_t value) {
  constexpr int kLowBits = 24;
  const auto low = static_cast<uint32_t>(value) & ((1U << kLowBits) - 1);
  return (uint64_t{__reduce_add_sync(0xffffffff, static_cast<uint32_t>(value >> kLowBits))}
          << kLowBits) +
         __reduce_add_sync(0xffffffff, low);
}

// Of values of any size.
__device__ inline uint64_t WarpTotal(uint64_t value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

__device__ inline float WarpSum(float value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

__device__ inline uint64_t WarpMax(uint64_t value) {
  const auto high = static_cast<uint32_t>(value >> 32);
  const uint32_t max_high = __reduce_max_sync(0xffffffff, high);
  const uint32_t low = high == max_high ? static_cast<uint32_t>(value) : 0;
  return static_cast<uint64_t>(max_high) << 32 | __reduce_max_sync(0xffffffff, low);
}

// Inclusive.
template <typename T>
__device__ T WarpScan(T value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int offset = 1; offset < 32; offset *= 2) {
    const T left = __shfl_up_sync(0xffffffff, value, offset);
    if (lane >= offset) value += left;
  }
  return value;
}

// The first bin at which the sum of `values` reaches `target` > 0, by one warp.
template <typename T>
__device__ void FindBin(const T* values, const uint32_t* counts, T target, FoundBin* found) {
  constexpr int kPerLane = kNumBins / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  T own[kPerLane];
  T sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) sum += own[i] = values[lane * kPerLane + i];
  const T end = WarpScan(sum);
  if (lane == 31 && end < target) *found = {-1, 0, 0};
  T before = end - sum;
  if (before >= target || target > end) return;
  int bin = lane * kPerLane;
  bool is_before = true;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    is_before = is_before && before + own[i] < target;
    if (!is_before) continue;
    before += own[i];
    ++bin;
  }
  *found = {bin, counts[bin], before};
}

// Equal floats give equal keys, larger ones larger keys; NaN must not come.
__device__ inline uint32_t OrderedBits(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0F);  // -0 -> 0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float FromOrderedBits(uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key ^ 0x80000000U : ~key);
}

}  // namespace inflight::decoding

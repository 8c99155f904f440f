// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over a warp or a CTA. Every thread gets the result, and for given inputs it has
// the same bits on every run: terms meet in a fixed order.
#pragma once

#include <cmath>

namespace inflight::ops::cuda {

inline constexpr int kWarp = 32;  // threads
inline constexpr unsigned kAllLanes = 0xffffffffU;

__device__ inline float WarpSum(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(kAllLanes, x, distance);
  return x;
}

// NaN counts as nothing.
__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

// Reductions over a CTA of whole warps, in which all its threads take part; one barrier each. A
// kernel has one of these, and asks it for SumAndMax once. Two sets of slots take turns: who writes
// a set has passed the barrier of the reduction between, at which all had finished reading it.
class BlockReducer {
 public:
  __device__ float Sum(float x) { return Reduce</*kIsMax=*/false>(x); }
  __device__ float Max(float x) { return Reduce</*kIsMax=*/true>(x); }  // NaN counts as nothing
  // Both of two values, behind one barrier.
  __device__ void SumAndMax(float& sum, float& max) {
    __shared__ float2 slots[kWarp];
    sum = WarpSum(sum);
    max = WarpMax(max);
    const unsigned lane = threadIdx.x % kWarp;
    if (lane == 0) slots[threadIdx.x / kWarp] = {sum, max};
    __syncthreads();
    const bool has_slot = lane < blockDim.x / kWarp;
    sum = WarpSum(has_slot ? slots[lane].x : 0.0F);
    max = WarpMax(has_slot ? slots[lane].y : -INFINITY);
  }

 private:
  template <bool kIsMax>
  __device__ float Reduce(float x) {
    __shared__ float slots[2][kWarp];
    const unsigned lane = threadIdx.x % kWarp;
    x = kIsMax ? WarpMax(x) : WarpSum(x);
    if (lane == 0) slots[turn_][threadIdx.x / kWarp] = x;
    __syncthreads();
    x = lane < blockDim.x / kWarp ? slots[turn_][lane] : (kIsMax ? -INFINITY : 0.0F);
    turn_ ^= 1;
    return kIsMax ? WarpMax(x) : WarpSum(x);
  }

  int turn_ = 0;
};

}  // namespace inflight::ops::cuda

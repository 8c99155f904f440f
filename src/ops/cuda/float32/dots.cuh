// SPDX-License-Identifier: Apache-2.0
// Inner products of float32 rows by a warp. Lane l has elements 4 l to 4 l + 3 of each 128 and adds
// them up in ascending order; then the lanes' sums meet in a tree. So a sum has the same bits
// whatever is computed beside it, and wherever its rows lie.
#pragma once

#include <cstdint>

#include "ops/cuda/reduce.cuh"

namespace inflight::ops::cuda::float32 {

inline constexpr int kLaneElements = 4;

// Elements [i, i + 4) of a row of k; those behind it are 0.
template <bool kIsAligned>
__device__ float4 LoadFour(const float* row, int64_t i, int64_t k) {
  if constexpr (kIsAligned) return *reinterpret_cast<const float4*>(row + i);
  return {row[i], i + 1 < k ? row[i + 1] : 0.0F, i + 2 < k ? row[i + 2] : 0.0F,
          i + 3 < k ? row[i + 3] : 0.0F};
}

// sums[r][c] = x[r] w[c]^T of rows of k elements, in every lane. Of aligned rows k is a multiple
// of 4.
template <int kRows, int kColumns, bool kIsAligned>
__device__ void Dots(const float* const (&x)[kRows], const float* const (&w)[kColumns], int64_t k,
                     float (&sums)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = 0;
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarp);
  constexpr int kUnroll = kRows == 1 ? 4 : 1;  // loads of few rows are on their way together
#pragma unroll kUnroll
  for (int64_t i = lane * kLaneElements; i < k; i += int64_t{kWarp} * kLaneElements) {
    float4 a[kRows];
    float4 b[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) b[c] = LoadFour<kIsAligned>(w[c], i, k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) a[r] = LoadFour<kIsAligned>(x[r], i, k);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float sum = fmaf(a[r].x, b[c].x, sums[r][c]);
        sum = fmaf(a[r].y, b[c].y, sum);
        sum = fmaf(a[r].z, b[c].z, sum);
        sums[r][c] = fmaf(a[r].w, b[c].w, sum);
      }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = WarpSum(sums[r][c]);
}

// That of row `row` and column `column`, which differ from lane to lane.
template <int kRows, int kColumns>
__device__ float Pick(const float (&sums)[kRows][kColumns], int row, int column) {
  float picked = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (r == row && c == column) picked = sums[r][c];
  return picked;
}

}  // namespace inflight::ops::cuda::float32

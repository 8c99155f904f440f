// SPDX-License-Identifier: Apache-2.0
// Rows that one CTA holds in registers: thread i has the vectors i, i + blockDim.x, ... of its row,
// kVectors of them; those past the end of the row are none of its.
#pragma once

#include "ops/cuda/reduce.cuh"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {

inline constexpr int kMaxRowThreads = 1024;

// Threads of a CTA, whole warps, that hold rows of `width` elements in units of `unit` elements,
// `per_thread` of them each.
inline unsigned RowThreads(int64_t width, int unit, int per_thread) {
  const int64_t elements = int64_t{unit} * per_thread;
  const int64_t threads = (width + elements - 1) / elements;
  const int64_t whole = (threads + kWarp - 1) / kWarp * kWarp;
  return static_cast<unsigned>(whole < kMaxRowThreads ? whole : kMaxRowThreads);
}

// First element of this thread's vector j.
__device__ inline int64_t RowIndex(int j) {
  return (int64_t{threadIdx.x} + int64_t{j} * blockDim.x) * kVector;
}

// The largest magnitude among those of this thread's elements that are in the row.
template <int kVectors>
__device__ float LargestMagnitude(const float (&x)[kVectors][kVector], int64_t width) {
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kVectors; ++j)
    if (RowIndex(j) < width)
#pragma unroll
      for (int k = 0; k < kVector; ++k) largest = fmaxf(largest, fabsf(x[j][k]));
  return largest;
}

// Writes a row, whose largest magnitude is `largest`, in e4m3, and its scale (QuantizeParams,
// ops/activation.h).
template <int kVectors>
__device__ void StoreFp8Row(const float (&x)[kVectors][kVector], int64_t width, float largest,
                            Fp8* y, float* scale) {
  const float row_scale = Fp8Scale(largest);
  const float inverse = 1.0F / row_scale;
  if (threadIdx.x == 0) *scale = row_scale;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    if (RowIndex(j) >= width) continue;
    float scaled[kVector];
#pragma unroll
    for (int k = 0; k < kVector; ++k) scaled[k] = x[j][k] * inverse;
    Store(y + RowIndex(j), scaled);
  }
}

}  // namespace inflight::ops::cuda

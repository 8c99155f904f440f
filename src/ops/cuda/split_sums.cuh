// SPDX-License-Identifier: Apache-2.0
// The end of a product whose k is divided among the CTAs of a cluster: their sums of a tile, each
// in its own shared memory, are added in the order of the CTAs, each token by one of them, and
// become y.
#pragma once

#include "ops/cuda/activate.cuh"
#include "ops/cuda/product_output.h"
#include "ops/cuda/split_sums.h"
#include "tensor/cuda_cluster.cuh"

namespace inflight::ops::cuda {

// y[token, row .. row + 4) = act(sums * scale + bias)
__device__ inline void Finish(const ProductOutput& out, bool has_vectors, int token, int row,
                              float (&sums)[4]) {
  const int count = min(4, out.n - row);
  if (count <= 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] *= out.scale;
    if (out.bias != nullptr && i < count) sums[i] += out.bias[row + i];
  }
  if (out.activation != ActivationKind::kNone) Activate(out.activation, sums);
  const int64_t at = token * out.stride + row;
  const bool is_whole = count == 4 && has_vectors;
  if (out.y_dtype == DType::kF32) {
    float* y = static_cast<float*>(out.y) + at;
    if (is_whole) {
      *reinterpret_cast<float4*>(y) = make_float4(sums[0], sums[1], sums[2], sums[3]);
      return;
    }
    for (int i = 0; i < count; ++i) y[i] = sums[i];
    return;
  }
  uint16_t bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    bits[i] = out.y_dtype == DType::kBF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(sums[i]))
                                          : __half_as_ushort(__float2half_rn(sums[i]));
  auto* y = static_cast<uint16_t*>(out.y) + at;
  if (is_whole) {
    *reinterpret_cast<uint2*>(y) = {bits[0] | uint32_t{bits[1]} << 16,
                                    bits[2] | uint32_t{bits[3]} << 16};
    return;
  }
  for (int i = 0; i < count; ++i) y[i] = bits[i];
}

// By whole warps, `warp` of `num_warps` of each CTA, between two ClusterSync where there are
// several splits: tokens [first_token, first_token + num_tokens) of y, whose sums each CTA has at
// `sums` [num_tokens][SplitSumStride(kRows)], of rows [first_row, first_row + kRows).
template <int kRows>
__device__ void AddSplits(const ProductOutput& out, bool has_vectors, float* sums, int split,
                          int splits, int warp, int num_warps, int first_row, int first_token,
                          int num_tokens) {
  static_assert(kRows == 128, "four of each lane");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int token = split + splits * warp; token < num_tokens; token += splits * num_warps) {
    float* const from = sums + token * SplitSumStride(kRows) + lane * 4;
    float4 parts[kMaxSummedSplits];
#pragma unroll
    for (int part = 0; part < kMaxSummedSplits; ++part)
      if (part < splits)
        parts[part] =
            *reinterpret_cast<const float4*>(splits == 1 ? from : inflight::cuda::Peer(from, part));
    float total[4] = {};
#pragma unroll
    for (int part = 0; part < kMaxSummedSplits; ++part) {
      if (part >= splits) break;
      total[0] += parts[part].x, total[1] += parts[part].y;
      total[2] += parts[part].z, total[3] += parts[part].w;
    }
    Finish(out, has_vectors, first_token + token, first_row + lane * 4, total);
  }
}

}  // namespace inflight::ops::cuda

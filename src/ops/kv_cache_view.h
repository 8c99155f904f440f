// SPDX-License-Identifier: Apache-2.0
// One KV group's paged cache on a device: layers of one window and dtype share block tables
// (docs/reference/kernels.md, "KV cache").
//
// Outer layout [num_layers][num_blocks][2][num_kv_heads][block_size][head_dim], K first
// (arXiv:2309.06180 for the paging). The CPU backend permutes inside a (block, kv head) for its dot
// products:
//   float32, float16: K [block_size/16][head_dim][16],      V [block_size][head_dim]
//   bfloat16:         K [block_size/16][head_dim/2][16][2], V [block_size/2][head_dim][2]
// ops/reference uses the same permutation, so that both can read one cache in tests. CUDA keeps
// [block_size][row] for K and V of a (block, kv head), also in FP8, where a row is head_dim
// elements and, of sizes that its kernels in 16 bits do not have, zeros behind them. Block
// contents are never exchanged between devices.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace inflight::ops {

struct KvCacheView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;  // f32 | f16 | bf16; on CUDA also f8e4m3
  int num_layers = 0;
  int64_t num_blocks = 0;
  int num_kv_heads = 0;
  int block_size = 0;  // tokens; a multiple of 16
  int head_dim = 0;    // a multiple of 8
  int row_dim = 0;     // of a row, what stands behind head_dim included; 0 = head_dim
  // Of an FP8 cache: element x stands for x * scale, [num_layers][2], K's then V's, in host memory.
  // Null = 1.
  const float* scales = nullptr;

  int row() const { return row_dim == 0 ? head_dim : row_dim; }
  size_t head_bytes() const {
    return static_cast<size_t>(block_size) * static_cast<size_t>(row()) * SizeOf(dtype);
  }
  // Of one layer.
  size_t block_bytes() const { return 2 * static_cast<size_t>(num_kv_heads) * head_bytes(); }
  std::byte* Keys(int layer, int64_t block, int kv_head) const {
    return data +
           (static_cast<size_t>(layer) * static_cast<size_t>(num_blocks) +
            static_cast<size_t>(block)) *
               block_bytes() +
           static_cast<size_t>(kv_head) * head_bytes();
  }
  std::byte* Values(int layer, int64_t block, int kv_head) const {
    return Keys(layer, block, kv_head) + static_cast<size_t>(num_kv_heads) * head_bytes();
  }

  // Element of token `offset` of a block, dimension `dim`, counted from Keys() and from Values().
  int64_t KeyIndex(int offset, int dim) const {
    const int64_t group = static_cast<int64_t>(offset / 16) * head_dim * 16;
    if (dtype == DType::kBF16) return group + (dim / 2) * 32 + (offset % 16) * 2 + dim % 2;
    return group + dim * 16 + offset % 16;
  }
  int64_t ValueIndex(int offset, int dim) const {
    if (dtype == DType::kBF16)
      return static_cast<int64_t>(offset / 2) * head_dim * 2 + dim * 2 + offset % 2;
    return static_cast<int64_t>(offset) * head_dim + dim;
  }
};

}  // namespace inflight::ops

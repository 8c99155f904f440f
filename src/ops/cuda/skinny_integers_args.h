// SPDX-License-Identifier: Apache-2.0
// What the kernels of skinny_integers.cuh are given, and how large their parts are.
#pragma once

#include "ops/cuda/product_output.h"
#include "ops/tensor_core_order.h"

namespace inflight::ops::cuda::skinny_integers {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxTokens = 16;
constexpr int kMaxRowTiles = 3;
constexpr int kMaxStages = 8;

constexpr int SlabsPerStage(int row_tiles) { return row_tiles == 1 ? 2 : 1; }
constexpr int StageElements(int bits, int row_tiles) {
  return SlabsPerStage(row_tiles) * SlabElements(bits);
}
constexpr int StageWeightBytes(int row_tiles) {
  return SlabsPerStage(row_tiles) * row_tiles * 16 * kSlabBytes;
}
// So much behind a whole number of slabs of a token that the same 16 bytes of 8 tokens are in
// different banks.
constexpr int kTokenPadding = 16;
// Sums of the warps: [kWarps][m][rows + 4]; 4 more keep the writes of a warp in different banks.
constexpr int SumStride(int row_tiles) { return 16 * row_tiles + 4; }

struct Args {
  const uint8_t* x;      // [m, k] of 2 bytes
  const uint8_t* w;      // [n, row_bytes]
  const float* scales;   // [n], or [n / 64, num_groups, 64]
  const float* offsets;  // [n / 64, num_groups, 64] or null
  int64_t row_bytes;     // of w
  int k;
  int m;
  int group_size;   // 0: none
  int num_groups;   // of a row
  int slab_groups;  // of a slab, at least 1: the scales that a row has for it
  int group_slabs;  // of a group, where it has several; else 0
  int num_tiles;    // of row_tiles * 16 rows
  int split;        // warps of a tile: 1, 2, 4 or 8
  int stages;
  int stage_bytes;  // weights, scales, offsets and, where x is not resident, tokens
  bool is_x_resident;
  int x_stride;  // bytes from one token to the next in shared memory
  int sums_at;   // bytes
  ProductOutput out;
};

struct LaunchPlan {
  DType dtype;  // of x
  int row_tiles;
  int num_ctas;
  int ctas_per_sm;  // 1 or 2
  int shared_bytes;
  bool overlap;
};

// In files of their own, which compile side by side.
Status LaunchInt4(const Args& args, const LaunchPlan& plan, CudaStream& stream);
Status LaunchInt8(const Args& args, const LaunchPlan& plan, CudaStream& stream);
Status LaunchFp8(const Args& args, const LaunchPlan& plan, CudaStream& stream);

}  // namespace inflight::ops::cuda::skinny_integers

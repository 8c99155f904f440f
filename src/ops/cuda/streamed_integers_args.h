// SPDX-License-Identifier: Apache-2.0
// What the kernels of streamed_integers.cuh are given, and how large their parts are.
#pragma once

#include <cuda.h>

#include "ops/cuda/product_output.h"
#include "ops/tensor_core_order.h"

namespace inflight::ops::cuda::streamed_integers {

constexpr int kBoxBytes = 128;  // of x, along k
constexpr int kMaxSlabGroups = 4;
constexpr int kMaxStages = 16;

constexpr int kRows = 128;       // of a tile, half of them a warpgroup's
constexpr int kConsumers = 256;  // threads
constexpr int kThreads = kConsumers + 64;
// A thread has the sums of `tokens` / 2 elements, twice where there are groups.
constexpr int CtasPerSm(int tokens) { return tokens <= 64 ? 2 : 1; }

struct Args {
  int num_slabs;   // along k
  int num_splits;  // CTAs of a cluster, among which they are divided
  int m;
  int slab_groups;  // of a slab: 1, 2, 4
  int group_slabs;  // of a group, at least 1
  bool has_offsets;
  bool has_vectors;  // four neighbours of y are stored at once
  int stages;
  int stage_bytes;
  const float* scales;  // [n] without groups; null with them
  ProductOutput out;
};

// The matrices that are copied.
struct Maps {
  CUtensorMap codes;   // [n, row bytes], boxes of 64 bytes and the tile's rows
  CUtensorMap x;       // [m, k], boxes of 128 bytes and as many rows as a tile has tokens, swizzled
  CUtensorMap scales;  // [n / 64, num_groups * 64], boxes of the tile's panels and a slab's groups
  CUtensorMap offsets;
};

struct LaunchPlan {
  DType dtype;  // of x
  int tokens;   // of a tile: 16, 32, 64 or 128
  int shared_bytes;
};

// Whether the program has code for the GPU in use.
bool HasCode();
Status LaunchInt4(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream);
Status LaunchInt8(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream);
Status LaunchFp8(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream);

}  // namespace inflight::ops::cuda::streamed_integers

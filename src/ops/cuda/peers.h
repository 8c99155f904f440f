// SPDX-License-Identifier: Apache-2.0
// Collectives between GPUs that reach each other's memory, in use a rank on each: what
// comm/communicator.h says, for values that lie alike in memory that all ranks share. A call is one
// kernel on the stream of each rank, and the ranks make the same calls in the same order. CTA b of
// one rank waits for CTA b of the others, by numbers that only grow, so that calls can be recorded
// into graphs and replayed. As many CTAs as there are run at once on any GPU.
//
// For tests several ranks may share a GPU (Peers::ranks_per_gpu). Nothing makes sure that kernels
// of several streams run at once, and one that waits keeps its multiprocessor. So grids are that
// much smaller: all CTAs that wait leave room for those that they wait for, and multiprocessors for
// what these have to compute before. Kernels that are started early (overlap.cuh) would take them,
// and a runtime that loads code late waits for the GPU to be idle.
//
// Sums are added in the order of ranks in float32 and rounded once: the same bits on all ranks,
// whatever the number of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/cuda_stream.h"

namespace inflight::ops::cuda {

inline constexpr int kMaxPeers = 8;

// The ranks as one of them sees them; passed to kernels.
struct Peers {
  int rank = 0;
  int size = 1;
  int ranks_per_gpu = 1;               // at most
  std::byte* shared[kMaxPeers] = {};   // of each rank, the same layout on all
  std::byte* mailbox[kMaxPeers] = {};  // of each rank, PeerMailboxBytes, zero before the first call
  // In host memory: once it is not 0 no kernel waits any more, and values are undefined.
  const uint32_t* abort = nullptr;
};

size_t PeerMailboxBytes(int size);  // of a group of so many

// Whether kernels are started before those before them have ended (overlap.cuh).
bool KernelsOverlap();

// Whether add_norm adds up rows of that number and width itself (AddNormParams::peers): so few that
// a trip over the link takes longer than their bytes.
bool PeersSumInNorm(const Peers& peers, int64_t num_rows, int64_t width);

// values = sum over the ranks, of `num_elements` from `offset` bytes into `shared` on; float16 or
// bfloat16. Offset and size are multiples of 16 bytes (kInvalidArgument).
Status PeerAllReduce(const Peers& peers, size_t offset, DType dtype, int64_t num_elements,
                     CudaStream& stream);

// Rows of ranks' columns become rows of all columns, on each rank; float32.
struct PeerColumns {
  size_t from = 0;  // offset of [num_rows, width]: columns from rank * width on
  size_t to = 0;    // offset of [num_rows, row_width], row_width <= size * width
  int64_t num_rows = 0;
  int64_t width = 0;
  int64_t row_width = 0;
};
Status PeerGatherColumns(const Peers& peers, const PeerColumns& columns, CudaStream& stream);

}  // namespace inflight::ops::cuda

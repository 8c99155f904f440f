// SPDX-License-Identifier: Apache-2.0
// How a GPU hands rows to another one whose memory it reaches: what a stage of a model's layers
// leaves for the next one.
//
//   sender                          the receiver's memory            receiver
//   SendRows: waits until a place   [place 0][place 1]               ReceiveRows: waits for the
//   is free, writes the rows there, arrived: calls so far  ------->  call, reads the rows, and says
//   and says so            <------  taken: calls so far              so in the sender's memory
//
// Each is one kernel on the stream of its rank; both make the same calls in the same order. CTA b
// of one waits for CTA b of the other, by numbers that only grow, so that calls can be recorded
// into graphs and replayed. A sender is at most kStagePlaces calls ahead. What is said of ranks
// that share a GPU in peers.h holds here too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/cuda_stream.h"

namespace inflight::ops::cuda {

inline constexpr int kStagePlaces = 2;
inline constexpr int kMaxStageCtas = 32;

// In the memory of each rank, zero before the first call: how many calls its CTAs have made, and
// those of its neighbours, which write that here.
struct alignas(128) StageDoor {
  uint32_t sent[kMaxStageCtas];      // to the next stage
  uint32_t taken[kMaxStageCtas];     // of these; written by that stage
  uint32_t received[kMaxStageCtas];  // from the stage before
  uint32_t arrived[kMaxStageCtas];   // written by that stage
};

// Passed to kernels.
struct StageLink {
  StageDoor* sender = nullptr;
  StageDoor* receiver = nullptr;
  std::byte* places = nullptr;  // [kStagePlaces, place_bytes] of the receiver
  size_t place_bytes = 0;       // a multiple of 16
  int num_ctas = kMaxStageCtas;
  // In host memory: once it is not 0 no kernel waits any more, and values are undefined.
  const uint32_t* abort = nullptr;
};

// `values`, `num_bytes` of them, as the next call of the link. Address and size are multiples of 16
// bytes, the size at most place_bytes (kInvalidArgument).
Status SendRows(const StageLink& link, const void* values, size_t num_bytes, CudaStream& stream);

// The first `num_bytes` of the next call, at most as many as were sent.
Status ReceiveRows(const StageLink& link, void* values, size_t num_bytes, CudaStream& stream);

}  // namespace inflight::ops::cuda

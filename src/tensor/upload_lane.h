// SPDX-License-Identifier: Apache-2.0
// The way of large amounts of data from the host to a GPU: several threads fill pinned pieces while
// earlier ones are copied.
//
// Threads: a lane belongs to one thread at a time. Builds without CUDA link upload_lane_absent.cc,
// where there is no device to make one for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/device.h"

namespace inflight {

// A CUDA stream and two pieces of pinned host memory that take turns.
class UploadLane {
 public:
  static constexpr size_t kPieceBytes = size_t{2} << 20;

  static Result<std::unique_ptr<UploadLane>> Create(Device& device);
  ~UploadLane();

  // kPieceBytes to fill. Waits until they are no longer being copied.
  Result<std::byte*> NextPiece();
  // Enqueues the copy of the first `num_bytes` of the piece to memory of the device, behind what
  // the lane enqueued before.
  Status Send(void* target, size_t num_bytes);
  Status Wait();  // until all that was enqueued is done

  // kPieceBytes of device memory that only this lane uses: for what is sent to be converted. Taken
  // from the device's ledger when it is first asked for.
  Result<void*> Scratch();

  void* stream() const;  // the cudaStream_t, for kernels that work on what was sent

 private:
  struct Impl;
  explicit UploadLane(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Calls work(lane, i) for each i in [0, n) on the threads of the device's host pool, a lane each,
// and waits until everything they enqueued is done. After an error no more items are begun; the
// first one is returned. `max_lanes` bounds the threads and the pinned memory.
using LaneWork = std::function<Status(UploadLane& lane, int64_t i)>;
Status UploadAll(Device& device, int64_t n, const LaneWork& work, int max_lanes = 16);

}  // namespace inflight

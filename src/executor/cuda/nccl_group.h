// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs that add up by NCCL: those of this process that do not reach each other's memory.
//
// NCCL adds pairs of numbers and rounds each sum to the model's dtype, in an order that depends on
// the size of the message. All ranks have the same bits.
// Threads: one for each rank's communicator; Abort any.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "executor/cuda/gpu_group.h"
#include "executor/cuda/nccl_library.h"

namespace inflight::executor::cuda {

class NcclGroup : public GpuGroup {
 public:
  // A rank on each of `devices`, which are different GPUs.
  static Result<std::unique_ptr<GpuGroup>> Create(std::span<Device* const> devices);
  ~NcclGroup() override;  // behind the graphs that its collectives were recorded into

  comm::Communicator& rank(int r) override;

 private:
  class Rank;
  explicit NcclGroup(const NcclCalls& calls) : calls_(calls) {}
  Status status();
  void Abort(const Status& reason);

  const NcclCalls& calls_;
  std::vector<NcclComm*> comms_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<bool> is_aborted_ = false;
  std::mutex mutex_;  // of all below
  Status reason_;     // of the abort
  // NCCL's abort lets kernels end at once, and returns when no graph has any of them.
  std::vector<std::thread> aborts_;
};

}  // namespace inflight::executor::cuda

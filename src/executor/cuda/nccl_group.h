// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs that add up by NCCL: those of this process that do not reach each other's memory,
// and those that are processes.
//
// NCCL adds pairs of numbers and rounds each sum to the model's dtype, in an order that depends on
// the size of the message. All ranks have the same bits. Send and Receive are for calls that no
// graph holds: NCCL asks that both ranks record a call and replay it together, or none. Threads:
// one for each rank's communicator; Abort any.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "executor/cuda/gpu_group.h"
#include "executor/cuda/nccl_library.h"

namespace inflight::executor::cuda {

class NcclGroup : public GpuGroup {
 public:
  // A rank on each of `devices`, which are different GPUs.
  static Result<std::unique_ptr<GpuGroup>> Create(std::span<Device* const> devices);
  // One of `size` ranks, of which each joins in its process; returns when all have, or once `check`
  // is an error. `id` was made by one of them: the bytes of an NcclId.
  static Result<std::unique_ptr<GpuGroup>> Join(Device& device, std::string_view id, int rank,
                                                int size, const std::function<Status()>& check);
  ~NcclGroup() override;  // behind the graphs that its collectives were recorded into

  comm::Communicator& rank(int r) override;

 private:
  class Rank;
  NcclGroup(const NcclCalls& calls, int size);
  Status status();
  void Abort(const Status& reason);

  const NcclCalls& calls_;
  const int size_;
  // Of those ranks that are here.
  std::vector<NcclComm*> comms_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<bool> is_aborted_ = false;
  std::mutex mutex_;  // of all below
  Status reason_;     // of the abort
  // NCCL's abort lets kernels end at once, and returns when no graph has any of them.
  std::vector<std::future<void>> aborts_;
};

}  // namespace inflight::executor::cuda

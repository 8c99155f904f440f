// SPDX-License-Identifier: Apache-2.0
// The ranks of a model on GPUs of this process that reach each other's memory: how they add up.
// Kernels do it (ops/cuda/peers.h); the host takes no part.
// Threads: one for each rank's communicator. All ranks have shared their memory before the first
// operation.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "executor/cuda/gpu_group.h"
#include "ops/cuda/peers.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

// Of the ranks on `devices` those on one GPU, at most. A kernel that waits for another rank may
// keep that rank's from the multiprocessors, so that several have one for debugging alone: else
// kInvalidArgument, or kFailedPrecondition where kernels overlap.
Result<int> RanksPerGpu(std::span<Device* const> devices);

// So that kernels of each reach the memory of all.
Status EnablePeerAccess(std::span<Device* const> devices);

class PeerGroup : public GpuGroup {
 public:
  // kUnimplemented names two GPUs of which one cannot reach the other's memory (NVLink, or one PCIe
  // switch; `nvidia-smi topo -p2p r` shows it).
  static Status Reaches(std::span<Device* const> devices);

  // A rank on each of `devices`, which reach each other and are `all` of a model, or those of a
  // stage of it. kInvalidArgument where there are too many, or one more than once, which
  // DebugOptions::ranks_share_gpu allows.
  static Result<std::unique_ptr<GpuGroup>> Create(std::span<Device* const> devices,
                                                  std::span<Device* const> all);
  ~PeerGroup() override;

  comm::Communicator& rank(int r) override;

 private:
  class Rank;
  PeerGroup() = default;
  Status status();
  void Abort(const Status& reason);

  std::mutex mutex_;
  Status reason_;  // of the abort, under mutex_
  std::vector<Buffer> mailboxes_;
  PinnedBuffer abort_;
  ops::cuda::Peers peers_;  // of all ranks; each passes its own number
  std::vector<std::unique_ptr<comm::Communicator>> ranks_;
};

}  // namespace inflight::executor::cuda

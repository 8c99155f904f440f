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

#include "comm/communicator.h"
#include "ops/cuda/peers.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

class PeerGroup {
 public:
  // A rank on each of `devices`. kInvalidArgument where there are too many, or one more than once,
  // which DebugOptions::ranks_share_gpu allows; kFailedPrecondition where another group has one of
  // them; kUnimplemented where one of two GPUs cannot reach the other's memory.
  static Result<std::unique_ptr<PeerGroup>> Create(std::span<Device* const> devices);
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  comm::Communicator& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }

 private:
  class Rank;
  PeerGroup() = default;
  Status status();
  void Abort(const Status& reason);

  std::vector<int> gpus_;  // that no other group may have
  std::mutex mutex_;
  Status reason_;  // of the abort, under mutex_
  std::vector<Buffer> mailboxes_;
  PinnedBuffer abort_;
  ops::cuda::Peers peers_;  // of all ranks; each passes its own number
  std::vector<std::unique_ptr<comm::Communicator>> ranks_;
};

}  // namespace inflight::executor::cuda

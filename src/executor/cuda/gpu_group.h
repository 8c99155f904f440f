// SPDX-License-Identifier: Apache-2.0
// The ranks of a model on GPUs of this process: how they add up. Over each other's memory
// (peer_group.h) where they reach it, else by NCCL (nccl_group.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "tensor/device.h"

namespace inflight::executor::cuda {

// A rank's collectives: those that steps on GPUs have.
class GpuRank : public comm::Communicator {
 public:
  Status AllGather(const TensorView&, const TensorView&, inflight::Stream&) override {
    return NotHere();
  }
  Status Send(const TensorView&, int, inflight::Stream&) override { return NotHere(); }
  Status Receive(const TensorView&, int, inflight::Stream&) override { return NotHere(); }

 private:
  static Status NotHere() {
    return Unimplemented("ranks on GPUs add up and gather columns; they send nothing");
  }
};

class GpuGroup {
 public:
  virtual ~GpuGroup();
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  virtual comm::Communicator& rank(int r) = 0;

  // A rank on each of `devices`. kFailedPrecondition where another group has one of them;
  // kUnimplemented where `is_deterministic`, they are more than two and only NCCL joins them, which
  // adds up in orders of its own; errors else as of PeerGroup and NcclGroup.
  static Result<std::unique_ptr<GpuGroup>> Create(std::span<Device* const> devices,
                                                  bool is_deterministic);

 protected:
  GpuGroup() = default;

 private:
  std::vector<int> gpus_;  // that no other group may have
};

}  // namespace inflight::executor::cuda

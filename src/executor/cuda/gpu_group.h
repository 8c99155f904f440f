// SPDX-License-Identifier: Apache-2.0
// The ranks of a model on GPUs of this process: how they add up. Over each other's memory
// (peer_group.h) where they reach it, else by NCCL (nccl_group.h). Those of several stages have a
// group of each stage, and hand rows from one stage to the next (stage_group.h, nccl_stages.h).
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
    return Unimplemented("ranks on GPUs that share layers add up and gather columns");
  }
};

struct StageMail;

// What a group of GPUs is made for.
struct GpuGroupShape {
  bool is_deterministic = false;
  int num_stages = 1;     // the ranks of a stage stand together
  size_t step_bytes = 0;  // of several stages: what one hands to the next of a step, at most
};

class GpuGroup {
 public:
  virtual ~GpuGroup();
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  virtual comm::Communicator& rank(int r) = 0;
  virtual comm::RankGroups groups(int r) { return {.tensor = &rank(r)}; }
  // Where what is drawn goes from the last stage to the others; null: there is one stage, or hosts
  // tell it (RankCall::drawn).
  virtual const StageMail* mail(int /*r*/) const { return nullptr; }
  virtual int num_stages() const { return 1; }
  // Of several stages: from here on they hand rows over. Before that Send and Receive do nothing,
  // so that a rank's first steps wait for no other stage.
  virtual void JoinStages() {}
  // Whether the stages' first steps are made one stage after the other: of ranks that share a GPU,
  // where one loads code while another one's kernel waits, both could wait for good.
  virtual bool warms_up_in_turn() const { return false; }
  // Of all that ranks wait for; as of comm::Communicator.
  virtual void Abort(const Status& reason) { rank(0).Abort(reason); }

  // A rank on each of `devices`. kFailedPrecondition where another group has one of them;
  // kUnimplemented where `is_deterministic`, more than two ranks add up and only NCCL joins them,
  // which does that in orders of its own; errors else as of the groups named above.
  static Result<std::unique_ptr<GpuGroup>> Create(std::span<Device* const> devices,
                                                  const GpuGroupShape& shape);

 protected:
  GpuGroup() = default;

 private:
  std::vector<int> gpus_;  // that no other group may have
};

}  // namespace inflight::executor::cuda

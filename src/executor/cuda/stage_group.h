// SPDX-License-Identifier: Apache-2.0
// The ranks of a model of several stages, on GPUs of this process that reach each other's memory.
// Those of a stage add up among themselves; each hands its rows to the rank of the next stage with
// the same part (ops/cuda/stage_link.h), and that of the last stage tells it what was drawn
// (stage_mail.h).
// Threads: one for each rank's communicators; Abort any.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "executor/cuda/gpu_group.h"
#include "executor/cuda/stage_mail.h"
#include "ops/cuda/stage_link.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

// What a rank of that stage takes of its GPU for its neighbours to write to.
uint64_t StageBytes(int stage, int num_stages, size_t step_bytes);

class StagedGroup : public GpuGroup {
 public:
  // Rank r is of stage r / (ranks of a stage), on GPUs that reach each other. Errors as of
  // PeerGroup::Create.
  static Result<std::unique_ptr<GpuGroup>> Create(std::span<Device* const> devices,
                                                  const GpuGroupShape& shape);
  ~StagedGroup() override;

  // To the ranks of other stages with the same part: Send to the next one, Receive from the one
  // before.
  comm::Communicator& rank(int r) override;
  comm::RankGroups groups(int r) override;
  const StageMail* mail(int r) const override {
    return are_told_ ? nullptr : &mails_[static_cast<size_t>(r)];
  }
  int num_stages() const override { return num_stages_; }
  void JoinStages() override { have_joined_ = true; }
  bool warms_up_in_turn() const override { return share_gpus_; }
  void Abort(const Status& reason) override;

 private:
  class Rank;
  StagedGroup() = default;
  Status status();
  Status Connect(std::span<Device* const> devices, const GpuGroupShape& shape, int ranks_per_gpu);

  int stage_size_ = 1;  // ranks
  int num_stages_ = 1;
  bool share_gpus_ = false;  // several ranks have one
  bool are_told_ = false;    // as of DebugOptions::stages_are_told
  std::atomic<bool> have_joined_ = false;
  std::mutex mutex_;
  Status reason_;  // of the abort, under mutex_
  PinnedBuffer abort_;
  std::vector<std::unique_ptr<GpuGroup>> tensor_;  // [num_stages] null: a stage is one rank
  std::vector<Buffer> memory_;                     // of each rank
  std::vector<StageMail> mails_;
  std::vector<std::unique_ptr<comm::Communicator>> ranks_;
};

}  // namespace inflight::executor::cuda

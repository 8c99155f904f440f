// SPDX-License-Identifier: Apache-2.0
// The ranks of a model of several stages on GPUs that do not reach each other's memory, or are of
// several processes: those of a stage add up by NCCL, and each hands its rows to the rank of the
// next stage with the same part by NCCL. What the last stage draws is told by the host
// (RankCall::drawn).
//
// Rows go one way alone: a rank that waits for another stage to take its rows waits for none that
// waits for it, however much NCCL keeps under way.
// Threads: one for each rank's communicators; Abort any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/cuda/gpu_group.h"
#include "model/config.h"

namespace inflight::executor::cuda {

class NcclStages : public GpuGroup {
 public:
  // Rank r, on devices[r], is of stage r / (ranks of a stage). Errors as of NcclGroup::Create.
  static Result<std::unique_ptr<GpuGroup>> Create(std::span<Device* const> devices, int num_stages);

  // How many groups the ranks of a model have in all, each of which has an id: those of each
  // stage's ranks, then those of the ranks that have the same part of all stages.
  static size_t NumGroups(const model::RankPart& part);
  // The rank of this process that has `part`; as of NcclGroup::Join, with the ids of all groups.
  static Result<std::unique_ptr<GpuGroup>> Join(Device& device, std::span<const std::string> ids,
                                                const model::RankPart& part,
                                                const std::function<Status()>& check);
  ~NcclStages() override;

  // To the ranks of other stages with the same part: Send to the next one, Receive from the one
  // before. Of a joined group `r` is the rank of this process.
  comm::Communicator& rank(int r) override;
  comm::RankGroups groups(int r) override;
  int num_stages() const override { return num_stages_; }
  void JoinStages() override { have_joined_ = true; }
  void Abort(const Status& reason) override;

 private:
  class Rank;
  NcclStages(int stage_size, int num_stages);

  const int stage_size_;  // ranks
  const int num_stages_;
  std::atomic<bool> have_joined_ = false;
  std::vector<std::unique_ptr<GpuGroup>> tensor_;    // of stages; null: its ranks are not here
  std::vector<std::unique_ptr<GpuGroup>> pipeline_;  // [stage_size] the same
  std::vector<std::unique_ptr<Rank>> ranks_;         // [stage_size * num_stages] the same
};

}  // namespace inflight::executor::cuda

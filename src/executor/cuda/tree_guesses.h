// SPDX-License-Identifier: Apache-2.0
// Trees that the last of several stages drafted, on their way to the stages before it. These begin
// a step, so that the leader's host waits for the trees and tells them with the step, as it tells
// what texts guess (text_guesses.h):
//
//   the leader                                 a stage before
//   TreeModel::Draft; Send  ---ids---> host
//   GuessOf                 ---RankCall::guesses--->  LookUpDrafts, then its step begins
//
// Threads: the executor's.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "executor/cuda/drafts_to_host.h"
#include "executor/cuda/guess_arenas.h"
#include "executor/memory_plan.h"
#include "scheduler/step_plan.h"

namespace inflight::executor::cuda {

class TreeGuesses {
 public:
  static Result<std::unique_ptr<TreeGuesses>> Create(const MemoryPlan& plan, Device& device);

  uint64_t pinned_bytes() const { return drafts_->pinned_bytes() + arenas_->pinned_bytes(); }

  // Enqueues the copy of the drafts of a plan's rows, which stand behind their slots' tokens then.
  Status Send(const scheduler::StepPlan& plan, const SlotState& slots, cudaStream_t stream);

  // Whether what was sent last is here.
  bool HaveCome() const { return drafts_->HaveCome(); }

  // Once they have come: of the `step`-th step, of slots that have `num_known` tokens. Valid as
  // those of GuessArenas.
  Guesses GuessOf(const scheduler::StepPlan& plan, uint64_t step,
                  const std::function<int(SlotId slot)>& num_known);

 private:
  TreeGuesses() = default;

  std::unique_ptr<DraftsToHost> drafts_;
  std::unique_ptr<GuessArenas> arenas_;
};

}  // namespace inflight::executor::cuda

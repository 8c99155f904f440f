// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/tree_guesses.h"

#include <utility>

#include "base/status_macros.h"

namespace inflight::executor::cuda {

Result<std::unique_ptr<TreeGuesses>> TreeGuesses::Create(const MemoryPlan& plan, Device& device) {
  std::unique_ptr<TreeGuesses> made(new TreeGuesses());
  ASSIGN_OR_RETURN(made->drafts_, DraftsToHost::Create(plan, device));
  ASSIGN_OR_RETURN(made->arenas_, GuessArenas::Create(plan, device));
  return Result<std::unique_ptr<TreeGuesses>>(std::move(made));
}

Status TreeGuesses::Send(const scheduler::StepPlan& plan, const SlotState& slots,
                         cudaStream_t stream) {
  return drafts_->SendAll(plan, slots, stream);
}

Guesses TreeGuesses::GuessOf(const scheduler::StepPlan& plan, uint64_t step,
                             const std::function<int(SlotId slot)>& num_known) {
  arenas_->Begin(step);
  for (int r = 0; r < plan.num_decode_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    if (row.num_draft_tokens > 0)
      arenas_->Add(static_cast<size_t>(num_known(row.slot)), drafts_->Of(row.slot));
  }
  return arenas_->guesses();
}

}  // namespace inflight::executor::cuda

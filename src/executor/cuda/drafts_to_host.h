// SPDX-License-Identifier: Apache-2.0
// Drafts that a GPU found, on their way to the host: of rows that wait for masks, of which it finds
// one for the place behind each draft (late_masks.h); of all rows of the last of several stages,
// which it tells to the stages before (tree_guesses.h).
//
// Of one step at a time: what was sent is read before the next is sent.
//
// Threads: the executor's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/cuda/step_kernels.h"
#include "executor/memory_plan.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

class DraftsToHost {
 public:
  static Result<std::unique_ptr<DraftsToHost>> Create(const MemoryPlan& plan, Device& device);

  uint64_t pinned_bytes() const { return memory_.size(); }

  // Enqueues the copy of the drafts of a plan's decode rows, of all or of those that wait for late
  // inputs. They stand behind the tokens of their slots by then.
  Status SendAll(const scheduler::StepPlan& plan, const SlotState& slots, cudaStream_t stream) {
    return Send(plan, /*of_all=*/true, slots, stream);
  }
  Status SendWaiting(const scheduler::StepPlan& plan, const SlotState& slots, cudaStream_t stream) {
    return Send(plan, /*of_all=*/false, slots, stream);
  }

  // Whether what was sent last is here.
  bool HaveCome() const { return __atomic_load_n(num_done_, __ATOMIC_ACQUIRE) == num_sent_; }

  // Of a slot among those, once they have come.
  std::span<const TokenId> Of(SlotId slot) const;

 private:
  explicit DraftsToHost(const MemoryPlan& plan);
  Status Send(const scheduler::StepPlan& plan, bool of_all, const SlotState& slots,
              cudaStream_t stream);

  const int max_drafts_;  // of a row
  const TokenId vocab_size_;
  PinnedBuffer memory_;  // a count of its own line, then ids [kMaxRows, max_drafts]
  uint64_t* num_done_ = nullptr;
  int32_t* ids_ = nullptr;
  uint64_t num_sent_ = 0;
  std::vector<SlotId> slots_;  // of the rows sent last, in their order
};

}  // namespace inflight::executor::cuda

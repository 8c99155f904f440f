// SPDX-License-Identifier: Apache-2.0
// Memory that a CUDA executor keeps between steps and that its steps' inputs are made in: the
// slots' tokens, lengths and block tables, the inputs of the step that is computed, and the pinned
// memory through which host and device exchange both.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "executor/cuda/step_kernels.h"
#include "executor/cuda/step_shape.h"
#include "executor/memory_plan.h"
#include "executor/slot_tables.h"
#include "model/decoder.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

class StepState {
 public:
  // `forced_acceptance` as in SlotState.
  static Result<std::unique_ptr<StepState>> Create(const MemoryPlan& plan, Device& device,
                                                   float forced_acceptance = -1);

  static uint64_t Bytes(const MemoryPlan& plan);  // of device memory
  uint64_t pinned_bytes() const {
    return tokens_.size() + tables_memory_.size() + arenas_.size() + outputs_.size() +
           counter_.size();
  }
  const SlotState& slots() const { return slots_; }
  const StepTensors& tensors() const { return tensors_; }

  // What the host knows of a slot's tokens: [0, num known) as of the last Collect.
  std::span<int32_t> host_tokens(int slot) const {
    return {
        reinterpret_cast<int32_t*>(tokens_.data()) + static_cast<int64_t>(slot) * slots_.max_tokens,
        static_cast<size_t>(slots_.max_tokens)};
  }

  // Enqueues the upload of the first `num_tokens` of host_tokens(slot), with them what a client
  // drafted after them, and empties its block table.
  // `prompt_table` is the sequence's own (executor/prompt_tables.h), or null.
  Status SetUpSlot(int slot, int num_tokens, const std::byte* prompt_table,
                   cudaStream_t stream) const {
    return cuda::SetUpSlot(slots_, slot, host_tokens(slot).data(), num_tokens, prompt_table,
                           stream);
  }

  // The block tables of a KV group that the device has after the steps packed so far, with its
  // block ids: what is done to those of beams is done here first (PlaceBeams).
  const SlotTables& host_tables(int group = 0) const { return tables_[static_cast<size_t>(group)]; }

  // Enqueues the upload of where beams of a search are now, tables from host_tables(), and if
  // `with_tokens` all of their tokens from host_tokens().
  Status PlaceBeams(std::span<const scheduler::SlotId> slots, std::span<const int32_t> last_tokens,
                    int num_tokens, bool with_tokens, cudaStream_t stream) const;

  // The arena of the `step`-th step (from 0 on) that this state begins; free once step - kNumArenas
  // has ended.
  StepArena& arena(uint64_t step) const {
    return reinterpret_cast<StepArena*>(arenas_.data())[step % kNumArenas];
  }

  // Packs a plan's rows, and keeps up host_tables(). Device block ids are the plan's plus one:
  // block 0 is the scratch block.
  StepShape Pack(const scheduler::StepPlan& plan, StepArena* arena) const;

  // Enqueues what finds the drafts of a plan's rows, where texts or another stage give them; before
  // Begin. `guesses` are of its decode rows that have drafts, in their order.
  Status LookUpDrafts(const scheduler::StepPlan& plan, const Guesses& guesses,
                      cudaStream_t stream) const;

  Status Begin(const StepShape& shape, cudaStream_t stream) const;
  // The changes of block tables of a step alone, whose inputs are packed; Begin makes them again.
  Status ApplyTables(cudaStream_t stream) const {
    return BeginStep(reinterpret_cast<const StepArena*>(arenas_.data()), slots_, tensors_, {},
                     stream);
  }
  // The caches of its other groups are left to the caller.
  model::Batch BatchOf(const StepShape& shape) const;
  Status End(const StepShape& shape, cudaStream_t stream) const {
    return EndStep(slots_, tensors_, shape.num_logits,
                   reinterpret_cast<StepOutputs*>(outputs_.data()), num_done_, stream);
  }

  // Of a step that has ended, until step + kNumArenas is begun.
  const StepOutputs& outputs(uint64_t step) const {
    return reinterpret_cast<const StepOutputs*>(outputs_.data())[step % kNumArenas];
  }

  // Steps that have ended since the start, all of whose outputs are visible.
  uint64_t num_done() const { return __atomic_load_n(num_done_, __ATOMIC_ACQUIRE); }

 private:
  StepState() = default;

  bool looks_drafts_up_ = false;
  SlotState slots_;
  StepTensors tensors_;
  Buffer buffer_;
  PinnedBuffer tokens_;             // [max_slots, max_tokens] int32
  PinnedBuffer tables_memory_;      // of `tables_`
  std::vector<SlotTables> tables_;  // [num_groups]
  PinnedBuffer arenas_;             // [kNumArenas] StepArena
  PinnedBuffer outputs_;            // [kNumArenas] StepOutputs
  PinnedBuffer counter_;            // a line of its own
  uint64_t* num_done_ = nullptr;
};

}  // namespace inflight::executor::cuda

// SPDX-License-Identifier: Apache-2.0
// Who proposes trees of drafts on a GPU, in the stream of the steps (medusa_model.h,
// eagle_model.h).
//
// Threads: the executor's.
#pragma once

#include <cstdint>
#include <memory>

#include "base/log.h"
#include "executor/backend.h"
#include "executor/cuda/step_shape.h"
#include "executor/cuda/step_state.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "inflight/status.h"
#include "model/decoder.h"
#include "model/eagle_head.h"
#include "ops/backend.h"
#include "ops/kv_cache_view.h"
#include "scheduler/step_plan.h"
#include "tensor/releasable_memory.h"

namespace inflight::executor::cuda {

class TreeModel {
 public:
  virtual ~TreeModel() = default;

  virtual uint64_t pinned_bytes() const = 0;

  // Its own keys and values, of the blocks of the model's first KV group; null: it has none.
  virtual const ops::KvCacheView* kv() const { return nullptr; }

  // Where those lie; null where they cannot be given back, or there are none.
  virtual std::shared_ptr<ReleasableMemory> kv_memory() const { return nullptr; }

  // What the decoder keeps of each step; null: nothing.
  virtual const model::KeptResiduals* residuals() const { return nullptr; }

  // Runs every kind of pass once, and records graphs as steps do.
  virtual Status WarmUp(bool use_graphs, bool records_all, logging::Level level) = 0;

  // Before the slot is set up on the device: what is kept of the sequence that it had is put where
  // others may need it.
  virtual Status SetUp(const SlotSetup& /*setup*/) { return Status::Ok(); }

  // Enqueues, before anything else of the step of `plan`, what is overdue before it.
  virtual Status Prepare(const scheduler::StepPlan& /*plan*/) { return Status::Ok(); }

  // Enqueues the trees of the `step`-th step, whose inputs are packed and not begun.
  virtual Status Draft(const scheduler::StepPlan& plan, uint64_t step) = 0;

  // Enqueues what becomes of the trees of a step whose tokens are drawn: paths are accepted and
  // move together in the model's `kv`, and what the next trees are made of is kept. `states` are
  // Decoder::States.
  virtual Status Settle(const KvStorage& kv, const TensorView& states, const StepShape& shape) = 0;
};

// MoveAccepted in each KV group.
Status MoveAcceptedOfAll(const KvStorage& kv, const StepState& state, int num_logits,
                         cudaStream_t stream);

// Of a plan that has a tree: the Medusa heads of `engine`, or `eagle`, which `ops` fit. On each
// rank of a model whole, with `ops` of OpChoice::kFixed, since all ranks have to draft the same.
// `decoder`, `stream` and `state` are those of the steps; they outlive it.
Result<std::unique_ptr<TreeModel>> MakeTreeModel(std::shared_ptr<const model::Engine> engine,
                                                 std::shared_ptr<const model::EagleHead> eagle,
                                                 ops::OpTable ops, const MemoryPlan& plan,
                                                 model::Decoder& decoder, inflight::Stream& stream,
                                                 const StepState& state, Device& device);

}  // namespace inflight::executor::cuda

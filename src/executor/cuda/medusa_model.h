// SPDX-License-Identifier: Apache-2.0
// Trees of drafts by the model's own Medusa heads on its GPU (docs/reference/speculation.md,
// "Medusa"): MedusaDrafts (executor/medusa_drafts.h) in the stream of the steps, so that the next
// step is drafted, launched and judged without the host.
//
//   a step     keeps of each slot that yields the state from which its newest token was drawn
//   the next   a pass for each head, up to the depth of the nodes that are planned: the heads'
//              blocks, its logits of all sequences, the best tokens, which become nodes
//
// Threads: the executor's.
#pragma once

#include <memory>
#include <vector>

#include "decoding/cuda/device_sampler.h"
#include "executor/cuda/medusa_kernels.h"
#include "executor/cuda/pass_graphs.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda/tree_model.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "model/engine.h"
#include "ops/backend.h"

namespace inflight::executor::cuda {

class MedusaModel : public TreeModel {
 public:
  // Of a plan that has a tree. Heads of a rank's engine are computed as those of all ranks, with
  // `ops` of OpChoice::kFixed. `stream` and `state` are those of the steps; both outlive it.
  static Result<std::unique_ptr<MedusaModel>> Create(std::shared_ptr<const model::Engine> engine,
                                                     ops::OpTable ops, const MemoryPlan& plan,
                                                     inflight::Stream& stream,
                                                     const StepState& state, Device& device);

  // What Create takes.
  static uint64_t Bytes(const model::ModelConfig& config, const MemoryPlan& plan);

  uint64_t pinned_bytes() const override { return arenas_.size() + best_sampler_->pinned_bytes(); }
  Status WarmUp(bool use_graphs, bool records_all, logging::Level level) override;
  Status Draft(const scheduler::StepPlan& plan, uint64_t step) override;
  Status Settle(const KvStorage& kv, const TensorView& states, const StepShape& shape) override;

 private:
  MedusaModel(const StepState& state, inflight::Stream& stream, decoding::DraftTree tree)
      : state_(state), stream_(stream), tree_(std::move(tree)) {}

  Status Enqueue(int head, int num_rows);

  // Of the heads' operators.
  inflight::Stream& stream() { return rank_stream_ == nullptr ? stream_ : *rank_stream_; }

  const StepState& state_;
  inflight::Stream& stream_;
  std::unique_ptr<inflight::Stream> rank_stream_;  // of a rank: the steps', with kernels of its own
  const decoding::DraftTree tree_;
  std::shared_ptr<const model::Engine> engine_;
  ops::OpTable ops_;
  Buffer buffer_;
  TensorView states_;               // [num_slots, hidden_size] of the dtype of linears' operands
  TensorView x_, operand_, delta_;  // [max_rows, hidden_size], operand_ of that dtype, else float32
  TensorView all_, none_;           // [max_rows] int32: 0, 1, ... and zeros
  TensorView logits_;               // [max_rows, vocab_size] float32
  std::byte* best_ = nullptr;       // [max_rows] BestLogits of num_choices_
  std::vector<int> num_choices_;    // of each head
  PinnedBuffer arenas_;             // [kNumArenas] MedusaArena
  std::unique_ptr<decoding::DeviceSampler> best_sampler_;  // of one slot, which has no rule
  std::unique_ptr<PassGraphs> passes_;                     // of each head
};

}  // namespace inflight::executor::cuda

// SPDX-License-Identifier: Apache-2.0
// Trees of drafts by the model's own Medusa heads (docs/reference/speculation.md, "Medusa"): a node
// of depth d and choice c is the c-th best token of head d - 1, at the state from which the
// sequence's newest token was drawn.
//
// Threads: one thread.
#pragma once

#include <memory>
#include <vector>

#include "executor/memory_plan.h"
#include "executor/tree_source.h"
#include "model/medusa_heads.h"
#include "ops/backend.h"

namespace inflight::executor {

class MedusaDrafts : public TreeSource {
 public:
  // Of a plan that has a tree.
  static Result<std::unique_ptr<MedusaDrafts>> Create(std::shared_ptr<const model::Engine> engine,
                                                      Device& device, const MemoryPlan& plan,
                                                      const ops::OpTable& ops);

  // What Create takes for a step of at most `max_batch_size` sequences.
  static uint64_t Bytes(const model::ModelConfig& config, int max_batch_size);

  const decoding::DraftTree& tree() const override { return tree_; }
  Status Draft(std::span<const Ask> asks, model::Decoder& decoder,
               inflight::Stream& stream) override;

 private:
  explicit MedusaDrafts(decoding::DraftTree tree) : tree_(std::move(tree)) {}

  Status DraftSome(std::span<const Ask> asks, const TensorView& states, inflight::Stream& stream);
  void ChooseByGuide(const Ask& ask, int depth, const float* logits) const;

  const decoding::DraftTree tree_;
  int vocab_size_ = 0;
  std::unique_ptr<model::MedusaHeads> heads_;
  std::vector<Ask> known_;     // those that have a state
  std::vector<int32_t> rows_;  // of their states
};

}  // namespace inflight::executor

// SPDX-License-Identifier: Apache-2.0
// Who proposes trees of drafts to the backend of the CPU, which judges them
// (docs/reference/speculation.md, "Trees").
//
// Threads: one thread.
#pragma once

#include <span>
#include <vector>

#include "decoding/draft_tree.h"
#include "decoding/guided_slot.h"
#include "model/decoder.h"
#include "scheduler/step_plan.h"
#include "tensor/stream.h"

namespace inflight::executor {

class TreeSource {
 public:
  virtual ~TreeSource() = default;

  // Of all sequences; they get its first nodes.
  virtual const decoding::DraftTree& tree() const = 0;

  struct Ask {
    scheduler::SlotId slot = 0;
    int num_nodes = 0;                             // 1 .. tree().size()
    const std::vector<TokenId>* tokens = nullptr;  // all that the slot knows
    // Of the KV cache, for all tokens and nodes. Sources that have keys of their own have them
    // there.
    const int32_t* blocks = nullptr;
    // Which token of the decoder's last step had the logits that the newest of `tokens` was drawn
    // from; -1: the last step had none of this sequence.
    int state = -1;
    const decoding::GuidedSlot* guide = nullptr;  // where the slot stands in it; null: has none
    std::vector<TokenId>* drafts = nullptr;       // tokens of the first nodes, num_nodes or none
  };
  virtual Status Draft(std::span<const Ask> asks, model::Decoder& decoder,
                       inflight::Stream& stream) = 0;

  // What sources that follow every sequence need, and others leave as it is.

  // Layers whose residuals the decoder keeps in each step; null: none.
  virtual const model::KeptResiduals* residuals() const { return nullptr; }

  // The slot gets another sequence.
  virtual Status SetUp(scheduler::SlotId, model::Decoder&, inflight::Stream&) {
    return Status::Ok();
  }

  // Before anything else of the step of that plan.
  virtual Status Prepare(const scheduler::StepPlan&, model::Decoder&, inflight::Stream&) {
    return Status::Ok();
  }

  // Tokens of the decoder's last step that are part of a sequence, drafts only where they were
  // accepted: those of the places [first_place, first_place + num_known + path.size()).
  struct Step {
    scheduler::SlotId slot = 0;
    int first_place = 0;
    int first_token = 0;  // of the step's packed tokens: that of first_place
    int num_known = 0;    // so many follow each other there; behind them stand all drafts
    std::span<const int> path = {};                // which of the drafts were accepted
    const std::vector<TokenId>* tokens = nullptr;  // as of Ask
    const int32_t* blocks = nullptr;
  };
  virtual Status Follow(std::span<const Step>, model::Decoder&, inflight::Stream&) {
    return Status::Ok();
  }

  // Whole blocks of the KV cache went to its host pool, or back.
  virtual void CopyBlocks(std::span<const scheduler::HostBlockCopy>, CpuPool&) {}
};

}  // namespace inflight::executor

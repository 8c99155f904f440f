// SPDX-License-Identifier: Apache-2.0
// How many pairs of each sequence a head of EAGLE on a GPU has not computed yet
// (executor/cuda/eagle_model.h), as far as the host knows: at most so many, since it plans steps
// before it learns how many drafts were accepted.
//
// Pairs of a prompt are computed with it. Of what is drawn they wait, a place in the slot's ring
// each, until
//
//   drafts are planned   few are computed by the pass that drafts, as those before its last pair
//   a ring has no room for what the step may settle, or all hold kMostInAll
//   the sequence has no row in a step: it may be about to end, and others to go on from its blocks
//   of a model with windows, whose blocks others may go on from sooner, a prompt is begun in its
//   middle
//
// In the last three cases, and where there are more than few, those of all sequences are computed
// together: the layer's weights are read once for all.
//
// Threads: the executor's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decoding/draft_tree.h"
#include "scheduler/step_plan.h"

namespace inflight::executor {

class PendingPairs {
 public:
  static constexpr int kFew = 8;  // before the last pair of a sequence that is drafted for
  static constexpr int kMostInAll = 1024;

  struct OfSlot {
    scheduler::SlotId slot = 0;
    int num_pairs = 0;
    bool operator==(const OfSlot&) const = default;
  };

  // Of `num_slots` slots whose rings have `ring` places, more than `tree` is deep. A pass has at
  // most `max_rows` rows, at least one of each sequence that is drafted for.
  PendingPairs(int num_slots, decoding::DraftTree tree, int ring, int max_rows, bool has_window);

  // The slot gets another sequence; those of a beam search are not `is_followed`. Returns how many
  // pairs are left of the one that it had, which have to be computed before.
  int SetUp(scheduler::SlotId slot, bool is_followed);

  // The pairs that have to be computed before the step, each slot's last ones; they no longer wait.
  // Valid until the next call.
  std::span<const OfSlot> Plan(const scheduler::StepPlan& plan);

  // Behind Plan. The step computes those of its drafting rows, and settles others.
  void Settle(const scheduler::StepPlan& plan);

  int Of(scheduler::SlotId slot) const { return slots_[static_cast<size_t>(slot)].num_pairs; }

  // Before a slot's last pair.
  int Before(scheduler::SlotId slot) const { return Of(slot) > 1 ? Of(slot) - 1 : 0; }

 private:
  struct Slot {
    int num_pairs = 0;
    bool is_followed = true;
    uint64_t step = 0;        // the last one that it had a row in
    bool is_in_pass = false;  // of that step, which drafts for it and computes all of them
  };

  // What a row settles at most.
  int MostOf(const scheduler::PlanRow& row) const { return 1 + tree_.Depth(row.num_draft_tokens); }

  const decoding::DraftTree tree_;
  const int ring_;
  const int max_rows_;
  const bool has_window_;
  std::vector<Slot> slots_;
  uint64_t num_steps_ = 0;
  std::vector<OfSlot> due_;
};

}  // namespace inflight::executor

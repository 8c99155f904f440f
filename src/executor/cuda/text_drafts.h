// SPDX-License-Identifier: Apache-2.0
// Drafts out of texts (decoding/suffix_drafts.h) for steps on a GPU. The host looks texts up when
// it launches a step, and may not know yet what the step in flight draws. So it guesses how a text
// goes on behind what it knows, past all that the step in flight may draw; the device takes what is
// left of the guess where the text went on like that (step_kernels.h, LookUpDrafts).
//
// Threads: the executor's.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decoding/suffix_drafts.h"
#include "executor/cuda/guess_arenas.h"
#include "executor/memory_plan.h"
#include "scheduler/step_plan.h"

namespace inflight::executor::cuda {

class TextDrafts {
 public:
  static Result<std::unique_ptr<TextDrafts>> Create(const MemoryPlan& plan, Device& device);

  uint64_t pinned_bytes() const { return arenas_->pinned_bytes(); }

  // The output of a sequence that ended.
  void Keep(std::span<const TokenId> output) { texts_.Keep(output); }

  // Of the decode rows of the `step`-th step that have drafts, in their order; of the step that was
  // guessed last again the same. `known` gives the tokens of a slot that the host knows. Valid
  // until step + kNumArenas is guessed.
  template <typename Known>
  Guesses GuessAll(const scheduler::StepPlan& plan, uint64_t step, const Known& known) {
    if (step == guessed_) return arenas_->guesses();
    guessed_ = step;
    arenas_->Begin(step);
    for (int r = 0; r < plan.num_decode_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      if (row.num_draft_tokens > 0) Add(known(row.slot), row.num_draft_tokens);
    }
    return arenas_->guesses();
  }

 private:
  explicit TextDrafts(const MemoryPlan& plan);
  void Add(std::span<const TokenId> known, int num_drafts);

  const int max_step_tokens_;  // that one step draws of a sequence
  const TokenId vocab_size_;
  decoding::SuffixDrafts texts_;
  std::unique_ptr<GuessArenas> arenas_;
  std::optional<uint64_t> guessed_;  // the step that was guessed last
  std::vector<TokenId> found_;
};

}  // namespace inflight::executor::cuda

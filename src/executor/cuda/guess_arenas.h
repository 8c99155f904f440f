// SPDX-License-Identifier: Apache-2.0
// Guesses of steps (executor/text_guesses.h), in pinned memory where kernels read them.
//
// Threads: the executor's.
#pragma once

#include <memory>
#include <span>

#include "executor/memory_plan.h"
#include "executor/text_guesses.h"
#include "inflight/request.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

class GuessArenas {
 public:
  static Result<std::unique_ptr<GuessArenas>> Create(const MemoryPlan& plan, Device& device);

  uint64_t pinned_bytes() const { return memory_.size(); }

  // Of the `step`-th step, which has none yet. Valid until step + kNumArenas begins.
  void Begin(uint64_t step);
  // Of the next row: its text is `num_known` tokens, behind which it thinks of `ids`.
  void Add(size_t num_known, std::span<const TokenId> ids);
  Guesses guesses() const;

  // Those of another rank, of the same plan. kDataLoss where they name ids that are not there.
  Status Copy(uint64_t step, const Guesses& others);

 private:
  explicit GuessArenas(int max_ids) : max_ids_(max_ids) {}

  const int max_ids_;      // of all guesses of a step
  PinnedBuffer memory_;    // [kNumArenas] guesses of DraftingRows::kMaxRows rows, then max_ids_ ids
  Guess* rows_ = nullptr;  // of the step that is guessed
  int32_t* ids_ = nullptr;
  int num_rows_ = 0;
  int num_ids_ = 0;
};

}  // namespace inflight::executor::cuda

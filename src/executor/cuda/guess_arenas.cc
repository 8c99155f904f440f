// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/guess_arenas.h"

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/step_kernels.h"

namespace inflight::executor::cuda {
namespace {

size_t GuessBytes(int max_ids) {
  return DraftingRows::kMaxRows * sizeof(Guess) + static_cast<size_t>(max_ids) * sizeof(int32_t);
}

}  // namespace

Result<std::unique_ptr<GuessArenas>> GuessArenas::Create(const MemoryPlan& plan, Device& device) {
  const int max_rows = std::min(plan.max_batch_size, DraftingRows::kMaxRows);
  std::unique_ptr<GuessArenas> made(new GuessArenas(max_rows * (1 + 2 * plan.max_draft_len)));
  ASSIGN_OR_RETURN(made->memory_,
                   PinnedBuffer::Allocate(device, kNumArenas * GuessBytes(made->max_ids_)));
  return made;
}

void GuessArenas::Begin(uint64_t step) {
  std::byte* const arena = memory_.data() + step % kNumArenas * GuessBytes(max_ids_);
  rows_ = reinterpret_cast<Guess*>(arena);
  ids_ = reinterpret_cast<int32_t*>(rows_ + DraftingRows::kMaxRows);
  num_rows_ = num_ids_ = 0;
}

void GuessArenas::Add(size_t num_known, std::span<const TokenId> ids) {
  const auto num_found = static_cast<int>(ids.size());
  CHECK_LT(num_rows_, DraftingRows::kMaxRows);
  CHECK_LE(num_ids_ + num_found, max_ids_);
  rows_[num_rows_++] = {
      .num_known = static_cast<int32_t>(num_known), .first_id = num_ids_, .num_ids = num_found};
  std::ranges::copy(ids, ids_ + num_ids_);
  num_ids_ += num_found;
}

Guesses GuessArenas::guesses() const {
  return {.rows = rows_, .ids = ids_, .num_rows = num_rows_, .num_ids = num_ids_};
}

Status GuessArenas::Copy(uint64_t step, const Guesses& others) {
  Begin(step);
  if (others.num_rows > DraftingRows::kMaxRows || others.num_ids > max_ids_)
    return DataLoss("guesses of another rank are more than a step has");
  for (int r = 0; r < others.num_rows; ++r) {
    const Guess& guess = others.rows[r];
    if (guess.num_ids < 0 || guess.first_id != num_ids_ ||
        guess.num_ids > others.num_ids - num_ids_)
      return DataLoss("a guess of another rank names ids that are not there");
    Add(static_cast<size_t>(guess.num_known),
        {others.ids + guess.first_id, static_cast<size_t>(guess.num_ids)});
  }
  return Status::Ok();
}

}  // namespace inflight::executor::cuda

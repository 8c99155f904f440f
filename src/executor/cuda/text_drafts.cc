// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/text_drafts.h"

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"

namespace inflight::executor::cuda {
namespace {

size_t ArenaBytes(int max_ids) {
  return DraftingRows::kMaxRows * sizeof(Guess) + static_cast<size_t>(max_ids) * sizeof(int32_t);
}

}  // namespace

TextDrafts::TextDrafts(const MemoryPlan& plan, int max_ids)
    : max_step_tokens_(1 + plan.max_draft_len),
      vocab_size_(plan.prompt_rows.vocab_size),
      max_ids_(max_ids),
      texts_(MemoryPlan::kKeptOutputTokens) {}

Result<std::unique_ptr<TextDrafts>> TextDrafts::Create(const MemoryPlan& plan, Device& device) {
  const int max_rows = std::min(plan.max_batch_size, DraftingRows::kMaxRows);
  const int max_ids = max_rows * (1 + 2 * plan.max_draft_len);
  std::unique_ptr<TextDrafts> drafts(new TextDrafts(plan, max_ids));
  ASSIGN_OR_RETURN(drafts->arenas_,
                   PinnedBuffer::Allocate(device, kNumArenas * ArenaBytes(max_ids)));
  return drafts;
}

void TextDrafts::Begin(uint64_t step) {
  std::byte* const arena = arenas_.data() + step % kNumArenas * ArenaBytes(max_ids_);
  rows_ = reinterpret_cast<Guess*>(arena);
  ids_ = reinterpret_cast<int32_t*>(rows_ + DraftingRows::kMaxRows);
  num_rows_ = num_ids_ = 0;
}

// Up to the first id that is none of the vocabulary.
void TextDrafts::Add(std::span<const TokenId> known, int num_drafts) {
  texts_.Draft(known, max_step_tokens_ + num_drafts, &found_);
  const auto is_foreign = [&](TokenId id) { return id < 0 || id >= vocab_size_; };
  const auto end = std::ranges::find_if(found_, is_foreign);
  const auto num_found = static_cast<int>(end - found_.begin());
  CHECK_LT(num_rows_, DraftingRows::kMaxRows);
  CHECK_LE(num_ids_ + num_found, max_ids_);
  rows_[num_rows_++] = {
      .num_known = static_cast<int32_t>(known.size()), .first_id = num_ids_, .num_ids = num_found};
  std::copy(found_.begin(), end, ids_ + num_ids_);
  num_ids_ += num_found;
}

}  // namespace inflight::executor::cuda

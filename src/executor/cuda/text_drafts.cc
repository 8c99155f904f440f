// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/text_drafts.h"

#include <algorithm>

#include "base/status_macros.h"

namespace inflight::executor::cuda {

TextDrafts::TextDrafts(const MemoryPlan& plan)
    : max_step_tokens_(1 + plan.max_draft_len),
      vocab_size_(plan.prompt_rows.vocab_size),
      texts_(MemoryPlan::kKeptOutputTokens) {}

Result<std::unique_ptr<TextDrafts>> TextDrafts::Create(const MemoryPlan& plan, Device& device) {
  std::unique_ptr<TextDrafts> drafts(new TextDrafts(plan));
  ASSIGN_OR_RETURN(drafts->arenas_, GuessArenas::Create(plan, device));
  return drafts;
}

// Up to the first id that is none of the vocabulary.
void TextDrafts::Add(std::span<const TokenId> known, int num_drafts) {
  texts_.Draft(known, max_step_tokens_ + num_drafts, &found_);
  const auto is_foreign = [&](TokenId id) { return id < 0 || id >= vocab_size_; };
  const auto end = std::ranges::find_if(found_, is_foreign);
  arenas_->Add(known.size(), {found_.begin(), end});
}

}  // namespace inflight::executor::cuda

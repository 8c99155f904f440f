// SPDX-License-Identifier: Apache-2.0
#include "executor/guide_masks.h"

#include <bit>
#include <memory>
#include <utility>

namespace inflight::executor {

using decoding::GuidedSlot;
using decoding::GuideVerdict;

GuideMasks::GuideMasks(int vocab_size, std::vector<int> draft_parents)
    : num_words_((static_cast<size_t>(vocab_size) + 31) / 32),
      nothing_(num_words_),
      draft_parents_(std::move(draft_parents)) {}

void GuideMasks::SetUp(Sequence* sequence) {
  const Request& request = sequence->request->params;
  if (request.guide == nullptr || sequence->num_beams > 1 || !request.draft_ids.empty()) return;
  const auto generated =
      std::span(sequence->known).subspan(static_cast<size_t>(sequence->num_prompt_tokens));
  sequence->guide = std::make_unique<GuidedSlot>(*request.guide, request.end_ids, generated);
}

std::vector<uint32_t>& GuideMasks::MaskOf(size_t place) {
  while (place >= allowed_.size()) allowed_.emplace_back(num_words_);
  return allowed_[place];
}

void GuideMasks::Fill(Sequence& sequence, std::span<const TokenId> drafts, LateInputs* inputs) {
  behind_.clear();
  behind_.resize(drafts.size() + 1);
  sequence.guide_verdicts.assign(drafts.size() + 1, GuideVerdict::kNone);
  for (size_t draft = 0; draft <= drafts.size(); ++draft) {
    if (draft > 0) {
      const size_t parent = ParentOf(draft);
      const GuidedSlot* const before = parent == 0 ? sequence.guide.get() : behind_[parent].get();
      // Where nothing may come behind the parent nothing may behind its child.
      if (before == nullptr || sequence.guide_verdicts[parent] != GuideVerdict::kTokens) continue;
      std::unique_ptr<GuidedSlot> clone = before->Clone();
      if (!clone->Accept(drafts[draft - 1])) continue;  // the mask before says so
      behind_[draft] = std::move(clone);
    }
    std::vector<uint32_t>& allowed = MaskOf(inputs->masks.size());
    GuidedSlot& guide = draft == 0 ? *sequence.guide : *behind_[draft];
    const GuideVerdict verdict = sequence.guide_verdicts[draft] = guide.FindAllowed(allowed);
    const bool has_tokens = verdict == GuideVerdict::kTokens;
    inputs->masks.push_back(
        {.slot = sequence.slot,
         .draft = static_cast<int>(draft),
         .allowed_bits = std::span<const uint32_t>(has_tokens ? allowed : nothing_)});
  }
}

size_t GuideMasks::Follow(Sequence& sequence, std::span<const TokenId> drawn,
                          uint64_t accepted_nodes, GuideVerdict* verdict) {
  size_t draft = 0;  // behind which the next token was drawn
  for (size_t taken = 0; taken < drawn.size(); ++taken) {
    *verdict = draft < sequence.guide_verdicts.size() ? sequence.guide_verdicts[draft]
                                                      : GuideVerdict::kNone;
    if (*verdict != GuideVerdict::kTokens) return taken;
    // A token that the mask forbids is drawn where all that may come is banned otherwise.
    if (!sequence.guide->Accept(drawn[taken])) {
      *verdict = GuideVerdict::kNone;
      return taken;
    }
    draft =
        accepted_nodes == 0 ? draft + 1 : static_cast<size_t>(std::countr_zero(accepted_nodes)) + 1;
    accepted_nodes &= accepted_nodes - 1;
  }
  *verdict = GuideVerdict::kTokens;
  return drawn.size();
}

}  // namespace inflight::executor

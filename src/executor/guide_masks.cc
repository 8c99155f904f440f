// SPDX-License-Identifier: Apache-2.0
#include "executor/guide_masks.h"

#include <algorithm>
#include <memory>

namespace inflight::executor {

using decoding::GuidedSlot;
using decoding::GuideVerdict;

GuideMasks::GuideMasks(int vocab_size)
    : num_words_((static_cast<size_t>(vocab_size) + 31) / 32), nothing_(num_words_) {}

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
  std::unique_ptr<GuidedSlot> behind;  // the drafts so far
  sequence.num_guided = 0;
  for (size_t draft = 0; draft <= drafts.size(); ++draft) {
    if (draft == 1) behind = sequence.guide->Clone();
    if (draft > 0 && !behind->Accept(drafts[draft - 1])) return;  // the mask before says so
    std::vector<uint32_t>& allowed = MaskOf(inputs->masks.size());
    GuidedSlot& guide = draft == 0 ? *sequence.guide : *behind;
    sequence.guide_verdict = guide.FindAllowed(allowed);
    if (sequence.guide_verdict != GuideVerdict::kTokens) {
      for (; draft <= drafts.size(); ++draft)
        inputs->masks.push_back(
            {.slot = sequence.slot, .draft = static_cast<int>(draft), .allowed_bits = nothing_});
      return;
    }
    ++sequence.num_guided;
    inputs->masks.push_back(
        {.slot = sequence.slot, .draft = static_cast<int>(draft), .allowed_bits = allowed});
  }
}

size_t GuideMasks::Follow(Sequence& sequence, std::span<const TokenId> drawn,
                          GuideVerdict* verdict) {
  const size_t most = std::min(static_cast<size_t>(sequence.num_guided), drawn.size());
  size_t taken = 0;
  while (taken < most && sequence.guide->Accept(drawn[taken])) ++taken;
  *verdict = GuideVerdict::kTokens;
  if (taken == drawn.size()) return taken;
  // A token that the mask forbids is drawn where all that may come is banned otherwise.
  const bool is_masked = taken < most || sequence.guide_verdict == GuideVerdict::kTokens;
  *verdict = is_masked ? GuideVerdict::kNone : sequence.guide_verdict;
  return taken;
}

}  // namespace inflight::executor

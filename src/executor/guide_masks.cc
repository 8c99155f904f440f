// SPDX-License-Identifier: Apache-2.0
#include "executor/guide_masks.h"

#include <algorithm>
#include <memory>

namespace inflight::executor {

using decoding::GuidedSlot;
using decoding::GuideVerdict;

GuideMasks::GuideMasks(int vocab_size) : num_words_((static_cast<size_t>(vocab_size) + 31) / 32) {}

void GuideMasks::SetUp(Sequence* sequence) {
  const Request& request = sequence->request->params;
  if (request.guide == nullptr || sequence->num_beams > 1) return;
  const auto generated =
      std::span(sequence->known).subspan(static_cast<size_t>(sequence->num_prompt_tokens));
  sequence->guide = std::make_unique<GuidedSlot>(*request.guide, request.end_ids, generated);
}

void GuideMasks::Fill(const Sequence& sequence, LateInputs* inputs) {
  const size_t place = inputs->masks.size();
  if (place == allowed_.size()) allowed_.emplace_back(num_words_);
  std::vector<uint32_t>& allowed = allowed_[place];
  if (sequence.guide->FindAllowed(allowed) != GuideVerdict::kTokens) return;
  inputs->masks.push_back({.slot = sequence.slot, .allowed_bits = allowed});
}

GuideVerdict GuideMasks::Follow(Sequence& sequence, std::span<const TokenId> drawn) {
  GuidedSlot& guide = *sequence.guide;
  if (guide.verdict() != GuideVerdict::kTokens) return guide.verdict();
  const bool may_come =
      std::ranges::all_of(drawn, [&](TokenId token) { return guide.Accept(token); });
  return may_come ? GuideVerdict::kTokens : GuideVerdict::kNone;
}

}  // namespace inflight::executor

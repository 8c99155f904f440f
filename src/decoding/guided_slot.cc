// SPDX-License-Identifier: Apache-2.0
#include "decoding/guided_slot.h"

#include <algorithm>

#include "base/check.h"
#include "decoding/weights.h"

namespace inflight::decoding {
namespace {

constexpr size_t kWordBits = 32;

size_t NumWords(size_t num_tokens) { return (num_tokens + kWordBits - 1) / kWordBits; }

void SetBit(std::span<uint32_t> words, TokenId token, bool is_set) {
  const auto at = static_cast<size_t>(token);
  if (token < 0 || at / kWordBits >= words.size()) return;
  const uint32_t bit = uint32_t{1} << (at % kWordBits);
  uint32_t& word = words[at / kWordBits];
  word = is_set ? word | bit : word & ~bit;
}

}  // namespace

Status StatusOf(GuideVerdict verdict, bool is_guided) {
  if (verdict == GuideVerdict::kNone && !is_guided)
    return InvalidArgument(
        "no token may come next: all are banned (leave out bad_words, no_repeat_ngram_size and "
        "biases of -inf)");
  switch (verdict) {
    case GuideVerdict::kTokens:
    case GuideVerdict::kEnd:
      return Status::Ok();
    case GuideVerdict::kNone:
      return InvalidArgument("guide",
                             "no token may come next: what the guide allows has no token in the "
                             "vocabulary, or is banned (change the guide, or leave out bad_words, "
                             "no_repeat_ngram_size and biases of -inf)");
    case GuideVerdict::kTooMuchWork:
      return InvalidArgument("guide",
                             "which tokens may come next was not found within the bound of work "
                             "(use a guide with fewer alternatives)");
  }
  return Status::Ok();
}

GuidedSlot::GuidedSlot(const Guide& guide, std::span<const TokenId> end_ids,
                       std::span<const TokenId> generated)
    : state_(guide.Begin()),
      num_words_(NumWords(static_cast<size_t>(guide.num_tokens()))),
      end_ids_(end_ids.begin(), end_ids.end()) {
  for (const TokenId token : generated) Accept(token);
}

std::unique_ptr<GuidedSlot> GuidedSlot::Clone() const {
  std::unique_ptr<GuidedSlot> clone(new GuidedSlot);
  clone->state_ = state_->Clone();
  clone->num_words_ = num_words_;
  clone->end_ids_ = end_ids_;
  clone->has_left_ = has_left_;
  clone->has_ended_ = has_ended_;
  return clone;
}

GuideVerdict GuidedSlot::FindAllowed(std::span<uint32_t> allowed) {
  return verdict_ = Find(allowed);
}

GuideVerdict GuidedSlot::Find(std::span<uint32_t> allowed) {
  CHECK_LE(num_words_, allowed.size());
  std::ranges::fill(allowed, 0);
  if (has_left_) return GuideVerdict::kNone;
  if (has_ended_) return GuideVerdict::kEnd;
  if (!state_->Mask(allowed.first(num_words_))) {
    std::ranges::fill(allowed, 0);
    return GuideVerdict::kTooMuchWork;
  }
  const bool may_end = state_->CanEnd();
  for (const TokenId id : end_ids_) SetBit(allowed, id, may_end);
  if (std::ranges::any_of(allowed, [](uint32_t word) { return word != 0; }))
    return GuideVerdict::kTokens;
  return may_end ? GuideVerdict::kEnd : GuideVerdict::kNone;
}

GuideVerdict GuidedSlot::Ban(std::span<float> logits) {
  allowed_.resize(NumWords(logits.size()));
  const GuideVerdict verdict = FindAllowed(allowed_);
  for (size_t w = 0; w < allowed_.size(); ++w) {
    const uint32_t word = allowed_[w];
    const size_t begin = w * kWordBits;
    const size_t size = std::min(kWordBits, logits.size() - begin);
    if (word == ~uint32_t{0}) continue;
    for (size_t i = 0; i < size; ++i)
      if ((word >> i & 1) == 0) logits[begin + i] = kBanned;
  }
  return verdict;
}

bool GuidedSlot::Accept(TokenId token) {
  const bool is_end = std::ranges::find(end_ids_, token) != end_ids_.end();
  has_left_ = has_left_ || has_ended_ || !(is_end ? state_->CanEnd() : state_->Accept(token));
  has_ended_ = is_end;
  return !has_left_;
}

size_t GuidedSlot::NumThatMayCome(std::span<const TokenId> tokens) const {
  if (tokens.empty()) return 0;
  const std::unique_ptr<GuidedSlot> clone = Clone();
  const auto may_not_come = [&clone](TokenId token) { return !clone->Accept(token); };
  return static_cast<size_t>(std::ranges::find_if(tokens, may_not_come) - tokens.begin());
}

}  // namespace inflight::decoding

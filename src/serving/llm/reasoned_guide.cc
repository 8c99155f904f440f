// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/reasoned_guide.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace inflight::serving {
namespace {

constexpr size_t kWordBits = 32;

// The text so far may fit both ways: the first bytes of the tag may be such of the guide.
class ReasonedState final : public GuideState {
 public:
  explicit ReasonedState(std::shared_ptr<const ReasonedGuideParts> parts)
      : parts_(std::move(parts)),
        with_(parts_->with->Begin()),
        without_(parts_->without->Begin()) {}

  std::unique_ptr<GuideState> Clone() const override {
    std::unique_ptr<ReasonedState> clone(new ReasonedState);
    clone->parts_ = parts_;
    if (with_ != nullptr) clone->with_ = with_->Clone();
    if (without_ != nullptr) clone->without_ = without_->Clone();
    clone->num_opened_ = num_opened_;
    return clone;
  }

  bool Mask(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0);
    if (without_ != nullptr && !without_->Mask(mask)) return false;
    if (with_ == nullptr) return true;
    if (!is_open()) {
      AddOpening(mask);
      return true;
    }
    std::vector<uint32_t> more(mask.size());
    if (!with_->Mask(more)) {
      std::ranges::fill(mask, 0);
      return false;
    }
    for (size_t i = 0; i < mask.size(); ++i) mask[i] |= more[i];
    return true;
  }

  bool Accept(TokenId token) override {
    const bool fits_opening = with_ != nullptr && (is_open() || Opens(token));
    const bool goes_with = fits_opening && with_->Accept(token);
    const bool goes_without = without_ != nullptr && without_->Accept(token);
    if (!goes_with && !goes_without) return false;
    if (!goes_without) without_.reset();
    if (!goes_with) {
      with_.reset();
    } else if (!is_open()) {
      num_opened_ =
          std::min(parts_->opening.size(), num_opened_ + parts_->tokens->Of(token).size());
    }
    return true;
  }

  bool CanEnd() const override {
    return (without_ != nullptr && without_->CanEnd()) ||
           (with_ != nullptr && is_open() && with_->CanEnd());
  }

 private:
  ReasonedState() = default;

  bool is_open() const { return num_opened_ == parts_->opening.size(); }
  std::string_view rest() const { return std::string_view(parts_->opening).substr(num_opened_); }

  // It is the next part of the tag, or has the rest of it.
  bool Opens(TokenId token) const {
    const std::string_view text = parts_->tokens->Of(token);
    return !text.empty() && (rest().starts_with(text) || text.starts_with(rest()));
  }

  // Such tokens begin with the next byte of the tag, and stand side by side where all are sorted.
  void AddOpening(std::span<uint32_t> mask) const {
    const TokenTexts& tokens = *parts_->tokens;
    const std::string_view first = rest().substr(0, 1);
    auto at = std::ranges::lower_bound(tokens.sorted, first, {},
                                       [&](TokenId id) { return tokens.Of(id); });
    for (; at != tokens.sorted.end() && tokens.Of(*at).starts_with(first); ++at)
      if (Opens(*at))
        mask[static_cast<size_t>(*at) / kWordBits] |= uint32_t{1}
                                                      << (static_cast<size_t>(*at) % kWordBits);
  }

  std::shared_ptr<const ReasonedGuideParts> parts_;
  std::unique_ptr<GuideState> with_;     // null: the text did not open with the tag
  std::unique_ptr<GuideState> without_;  // null: it is not what the guide asks for
  size_t num_opened_ = 0;                // bytes of the tag that came, while with_ stands
};

class ReasonedGuide final : public Guide {
 public:
  explicit ReasonedGuide(ReasonedGuideParts parts)
      : parts_(std::make_shared<const ReasonedGuideParts>(std::move(parts))) {}

  std::unique_ptr<GuideState> Begin() const override {
    return std::make_unique<ReasonedState>(parts_);
  }
  int num_tokens() const override { return parts_->with->num_tokens(); }
  uint64_t bytes() const override { return parts_->with->bytes() + parts_->without->bytes(); }

 private:
  const std::shared_ptr<const ReasonedGuideParts> parts_;
};

}  // namespace

std::shared_ptr<const Guide> MakeReasonedGuide(ReasonedGuideParts parts) {
  return std::make_shared<ReasonedGuide>(std::move(parts));
}

}  // namespace inflight::serving

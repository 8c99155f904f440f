// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/reasoning_budget.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace inflight::serving {
namespace {

constexpr std::string_view kBlanks = " \n\r\t";

class BudgetGuide final : public Guide {
 public:
  BudgetGuide(ReasoningBudget budget, int vocab_size, std::function<std::string(TokenId)> text_of,
              std::shared_ptr<const Guide> inner)
      : budget_(std::move(budget)),
        vocab_size_(vocab_size),
        text_of_(std::move(text_of)),
        inner_(std::move(inner)) {}

  std::unique_ptr<GuideState> Begin() const override;
  int num_tokens() const override { return inner_ != nullptr ? inner_->num_tokens() : vocab_size_; }
  uint64_t bytes() const override {
    return sizeof(*this) + budget_.begin.capacity() + budget_.end.capacity() +
           budget_.begin_again.capacity() +
           (budget_.end_ids.capacity() + budget_.end_again_ids.capacity()) * sizeof(TokenId);
  }

  const ReasoningBudget& budget() const { return budget_; }
  std::string TextOf(TokenId token) const { return text_of_(token); }
  const Guide* inner() const { return inner_.get(); }

 private:
  const ReasoningBudget budget_;
  const int vocab_size_;
  const std::function<std::string(TokenId)> text_of_;
  const std::shared_ptr<const Guide> inner_;
};

// The guide outlives its states.
class BudgetState final : public GuideState {
 public:
  explicit BudgetState(const BudgetGuide& guide)
      : guide_(guide), inner_(guide.inner() != nullptr ? guide.inner()->Begin() : nullptr) {
    if (guide.budget().has_begun) BeginReasoning();
  }
  BudgetState(const BudgetState& other)
      : guide_(other.guide_),
        inner_(other.inner_ != nullptr ? other.inner_->Clone() : nullptr),
        place_(other.place_),
        text_(other.text_),
        num_tokens_(other.num_tokens_),
        num_forced_(other.num_forced_),
        is_again_(other.is_again_),
        was_cut_(other.was_cut_) {}
  BudgetState& operator=(const BudgetState&) = delete;

  std::unique_ptr<GuideState> Clone() const override {
    return std::make_unique<BudgetState>(*this);
  }

  bool Mask(std::span<uint32_t> mask) override {
    constexpr int kBits = 32;
    if (place_ == Place::kForced) {
      std::ranges::fill(mask, 0U);
      const auto id = static_cast<size_t>(forced()[num_forced_]);
      mask[id / kBits] |= 1U << (id % kBits);
      return true;
    }
    if (inner_ != nullptr) return inner_->Mask(mask);
    std::ranges::fill(mask, std::numeric_limits<uint32_t>::max());
    const int num_last = guide_.num_tokens() % kBits;  // bits of the last word
    if (num_last > 0) mask.back() = (1U << num_last) - 1;
    return true;
  }

  bool Accept(TokenId token) override {
    if (place_ == Place::kForced && token != forced()[num_forced_]) return false;
    if (inner_ != nullptr && !inner_->Accept(token)) return false;
    switch (place_) {
      case Place::kBefore:
        text_ += guide_.TextOf(token);
        LookForBegin();
        break;
      case Place::kReasoning:
        ++num_tokens_;
        text_ += guide_.TextOf(token);
        LookForEnd();
        break;
      case Place::kForced:
        text_ += guide_.TextOf(token);
        if (++num_forced_ == forced().size()) EndReasoning(text_.find(guide_.budget().end));
        break;
      case Place::kOver:
        break;
    }
    return true;
  }

  bool CanEnd() const override {
    return place_ != Place::kForced && (inner_ == nullptr || inner_->CanEnd());
  }

 private:
  enum class Place : uint8_t { kBefore, kReasoning, kForced, kOver };

  const std::vector<TokenId>& forced() const {
    return was_cut_ ? guide_.budget().end_again_ids : guide_.budget().end_ids;
  }

  void BeginReasoning() {
    place_ = num_tokens_ < guide_.budget().max_tokens ? Place::kReasoning : Place::kForced;
  }

  // `end` is the place in the text of what ended it; what follows may be reasoning again.
  void EndReasoning(size_t end) {
    if (place_ == Place::kForced) was_cut_ = true;
    place_ = Place::kOver;
    num_forced_ = 0;
    if (guide_.budget().begin_again.empty() || end == std::string::npos) return;
    text_.erase(0, end + guide_.budget().end.size());
    is_again_ = true;
    place_ = Place::kBefore;
    LookForBegin();
  }

  void LookForBegin() {
    const std::string& begin = is_again_ ? guide_.budget().begin_again : guide_.budget().begin;
    text_.erase(0, std::min(text_.find_first_not_of(kBlanks), text_.size()));
    if (begin.starts_with(text_) && text_.size() < begin.size()) return;
    if (!text_.starts_with(begin)) {
      place_ = Place::kOver;
      return;
    }
    text_.erase(0, begin.size());
    BeginReasoning();
    if (place_ == Place::kReasoning) LookForEnd();
  }

  void LookForEnd() {
    const std::string& end = guide_.budget().end;
    if (const size_t found = text_.find(end); found != std::string::npos)
      return EndReasoning(found);
    if (text_.size() >= end.size()) text_.erase(0, text_.size() - end.size() + 1);
    if (num_tokens_ >= guide_.budget().max_tokens) place_ = Place::kForced;
  }

  const BudgetGuide& guide_;
  const std::unique_ptr<GuideState> inner_;
  Place place_ = Place::kBefore;
  std::string text_;    // before a tag that may have begun
  int num_tokens_ = 0;  // of reasoning
  size_t num_forced_ = 0;
  bool is_again_ = false;  // reasoning has ended once
  bool was_cut_ = false;
};

std::unique_ptr<GuideState> BudgetGuide::Begin() const {
  return std::make_unique<BudgetState>(*this);
}

}  // namespace

std::shared_ptr<const Guide> GuideByBudget(ReasoningBudget budget, int vocab_size,
                                           std::function<std::string(TokenId)> text_of,
                                           std::shared_ptr<const Guide> inner) {
  return std::make_shared<const BudgetGuide>(std::move(budget), vocab_size, std::move(text_of),
                                             std::move(inner));
}

}  // namespace inflight::serving

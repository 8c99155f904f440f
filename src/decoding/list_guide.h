// SPDX-License-Identifier: Apache-2.0
// A guide for tests: the output is one of a list of sequences of tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "inflight/guide.h"

namespace inflight::decoding {

struct ListGuideOptions {
  int num_tokens = 0;
  std::vector<std::vector<TokenId>> lists;
  size_t num_masks = ~size_t{0};  // those behind so many tokens are past their bound of work
};

class ListGuide final : public Guide {
 public:
  explicit ListGuide(ListGuideOptions options) : options_(std::move(options)) {}

  std::unique_ptr<GuideState> Begin() const override { return std::make_unique<State>(options_); }
  int num_tokens() const override { return options_.num_tokens; }
  uint64_t bytes() const override { return sizeof(*this); }

 private:
  class State final : public GuideState {
   public:
    explicit State(const ListGuideOptions& options) : options_(options) {}

    std::unique_ptr<GuideState> Clone() const override { return std::make_unique<State>(*this); }

    bool Mask(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0);
      if (tokens_.size() >= options_.num_masks) return false;
      for (const auto& list : options_.lists) {
        if (!GoesOn(list)) continue;
        const auto next = static_cast<size_t>(list[tokens_.size()]);
        mask[next / 32] |= uint32_t{1} << (next % 32);
      }
      return true;
    }

    bool Accept(TokenId token) override {
      const bool may_come = std::ranges::any_of(options_.lists, [&](const auto& list) {
        return GoesOn(list) && list[tokens_.size()] == token;
      });
      if (may_come) tokens_.push_back(token);
      return may_come;
    }

    bool CanEnd() const override {
      return std::ranges::find(options_.lists, tokens_) != options_.lists.end();
    }

   private:
    bool GoesOn(const std::vector<TokenId>& list) const {
      return list.size() > tokens_.size() &&
             std::equal(tokens_.begin(), tokens_.end(), list.begin());
    }

    const ListGuideOptions& options_;
    std::vector<TokenId> tokens_;
  };

  const ListGuideOptions options_;
};

inline std::shared_ptr<const Guide> MakeListGuide(int num_tokens,
                                                  std::vector<std::vector<TokenId>> lists) {
  return std::make_shared<ListGuide>(
      ListGuideOptions{.num_tokens = num_tokens, .lists = std::move(lists)});
}

}  // namespace inflight::decoding

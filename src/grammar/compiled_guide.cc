// SPDX-License-Identifier: Apache-2.0
#include "grammar/compiled_guide.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/stacks.h"
#include "grammar/trie_walk.h"

namespace inflight::grammar {
namespace {

class StackState : public GuideState {
 public:
  explicit StackState(std::shared_ptr<const CompiledGuide> guide)
      : guide_(std::move(guide)), walk_(guide_->automaton(), guide_->trie()) {
    StepEnds ends;
    const Automaton& automaton = guide_->automaton();
    // Rules do not begin with themselves, so that a start has fewer stacks than the grammar calls.
    (void)AddClosure(automaton, {automaton.start(), kBottom}, 0, pool_, stacks_, ends);
    DropStacksWithoutBytes(automaton, 0, stacks_);
    is_whole_ = ends.is_whole;
  }

  std::unique_ptr<GuideState> Clone() const override { return std::make_unique<StackState>(*this); }

  bool Mask(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0);
    Budget budget(kMaxMaskSteps);
    for (const Stack& stack : stacks_) {
      if (AddMaskOf(stack, budget, mask)) continue;
      std::ranges::fill(mask, 0);
      return false;
    }
    return true;
  }

  bool Accept(TokenId token) override {
    if (token < 0 || token >= guide_->num_tokens()) return false;
    const std::string_view bytes = TextOf(guide_->texts(), token);
    if (bytes.empty()) return false;
    const size_t pool_size = pool_.size();
    reached_.clear();
    bool is_whole = false;
    Budget budget(kMaxMaskSteps);
    if (!Read(bytes, stacks_, budget, &is_whole)) ReadApart(bytes, budget, &is_whole);
    if (reached_.empty() && !is_whole) {
      pool_.CutTo(pool_size);
      return false;
    }
    stacks_.swap(reached_);
    is_whole_ = is_whole;
    if (pool_.size() > max_pool_size_) DropUnusedFrames();
    return true;
  }

  bool CanEnd() const override { return is_whole_; }

 private:
  bool AddMaskOf(const Stack& stack, Budget& budget, std::span<uint32_t> mask) {
    const TokenTrie& trie = guide_->trie();
    const auto set_tokens = [&](uint32_t node, const StepEnds&) {
      SetBits(trie.TokensOf(node), mask);
    };
    StateMask scratch;
    const StateMask* known = guide_->masks().Of(stack.state, budget, scratch);
    if (known == nullptr) return false;
    // Near the bound of depth it matters what stands below.
    if (pool_[stack.frame].depth + known->depth > kMaxStackDepth) {
      return walk_.Below(TokenTrie::kRoot, {&stack, 1}, pool_, budget, set_tokens);
    }
    known->AddTo(mask);
    if (stack.frame == kBottom || !known->HasExits()) return true;
    const size_t pool_size = pool_.size();
    const Stack below = {pool_[stack.frame].state, pool_[stack.frame].below};
    StepEnds ends;
    below_.clear();
    bool is_done = AddClosure(guide_->automaton(), below, 0, pool_, below_, ends);
    DropStacksWithoutBytes(guide_->automaton(), 0, below_);
    for (size_t i = 0; i < known->exits.size() && is_done; ++i) {
      is_done = walk_.Below(known->exits[i], below_, pool_, budget, set_tokens);
    }
    if (is_done && !known->exit_words.empty()) is_done = AddBelowMany(*known, budget, mask);
    pool_.CutTo(pool_size);
    return is_done;
  }

  // The same where exits are many, such as those of a word that may end at each of its letters: the
  // bytes that `below_` takes are few, and each leads from all exits to the same.
  bool AddBelowMany(const StateMask& known, Budget& budget, std::span<uint32_t> mask) {
    const Automaton& automaton = guide_->automaton();
    const TokenTrie& trie = guide_->trie();
    const auto set_tokens = [&](uint32_t node, const StepEnds&) {
      SetBits(trie.TokensOf(node), mask);
    };
    const size_t num_below = below_.size();
    path_.assign(below_.begin(), below_.end());
    for (uint32_t b = 0; b < 256; ++b) {
      const auto byte = static_cast<uint8_t>(b);
      const auto takes_it = [&](const Stack& stack) {
        return automaton.Next(stack.state, byte) != kNoState;
      };
      if (std::ranges::none_of(below_, takes_it)) continue;
      const size_t pool_size = pool_.size();
      path_.resize(num_below);
      StepEnds ends;
      if (!Step(automaton, byte, 0, num_below, pool_, path_, ends)) return false;
      const std::span<const Stack> behind = std::span(path_).subspan(num_below);
      const std::span<const uint32_t> nodes = trie.NodesOf(byte);
      if (!budget.Spend(1 + num_below + nodes.size() / 16 + behind.size() * behind.size() / 8))
        return false;
      if (behind.empty() && !ends.is_whole) continue;
      for (const uint32_t node : nodes) {
        if (!known.IsOneOfManyExits(trie.parents[node])) continue;
        set_tokens(node, ends);
        if (!behind.empty() && trie.HasChildren(node) &&
            !walk_.Below(node, behind, pool_, budget, set_tokens))
          return false;
      }
      pool_.CutTo(pool_size);
    }
    return true;
  }

  // Adds to `reached_` where the bytes lead. False, and nothing is added: the stacks on the way are
  // too many, or the budget is spent.
  bool Read(std::string_view bytes, std::span<const Stack> from, Budget& budget, bool* is_whole) {
    path_.assign(from.begin(), from.end());
    size_t begin = 0;
    StepEnds ends;
    for (const char byte : bytes) {
      const size_t end = path_.size();
      ends = {};
      if (!Step(guide_->automaton(), static_cast<uint8_t>(byte), begin, end, pool_, path_, ends)) {
        return false;
      }
      const size_t num_stacks = path_.size() - end;
      if (!budget.Spend(1 + num_stacks * num_stacks)) return false;
      begin = end;
    }
    for (size_t i = begin; i < path_.size() && reached_.size() < kMaxStacks; ++i) {
      if (std::ranges::find(reached_, path_[i]) == reached_.end()) reached_.push_back(path_[i]);
    }
    *is_whole = *is_whole || ends.is_whole;
    return true;
  }

  // From each stack by itself, as masks do: what is dropped past kMaxStacks are ways to read the
  // text, of which others are left.
  void ReadApart(std::string_view bytes, Budget& budget, bool* is_whole) {
    for (const Stack& stack : stacks_) {
      if (budget.left() > 0) (void)Read(bytes, {&stack, 1}, budget, is_whole);
    }
  }

  // Frames that no stack stands on any longer go.
  void DropUnusedFrames() {
    FramePool kept;
    std::vector<FrameId> new_ids(pool_.size(), kBottom);
    std::vector<FrameId> chain;
    for (Stack& stack : stacks_) {
      FrameId id = stack.frame;
      for (; id != kBottom && new_ids[id] == kBottom; id = pool_[id].below) chain.push_back(id);
      for (; !chain.empty(); chain.pop_back()) {
        const FramePool::Frame& frame = pool_[chain.back()];
        new_ids[chain.back()] = kept.Push(frame.state, new_ids[frame.below]);
      }
      stack.frame = new_ids[stack.frame];
    }
    pool_ = std::move(kept);
    max_pool_size_ = std::max(kMinPoolSize, 2 * pool_.size());
  }

  static constexpr size_t kMinPoolSize = 256;

  std::shared_ptr<const CompiledGuide> guide_;
  FramePool pool_;
  std::vector<Stack> stacks_;  // each can read a byte
  bool is_whole_ = false;
  size_t max_pool_size_ = kMinPoolSize;
  TrieWalk walk_;               // of Mask
  std::vector<Stack> path_;     // of Accept, and of Mask
  std::vector<Stack> reached_;  // of Accept
  std::vector<Stack> below_;    // of Mask
};

}  // namespace

CompiledGuide::CompiledGuide(Automaton automaton, std::shared_ptr<const TokenTexts> texts)
    : automaton_(std::move(automaton)),
      texts_(std::move(texts)),
      trie_(TrieOf(texts_)),
      masks_(automaton_, trie_) {}

std::unique_ptr<GuideState> CompiledGuide::Begin() const {
  return std::make_unique<StackState>(shared_from_this());
}

uint64_t CompiledGuide::bytes() const {
  return sizeof(*this) + automaton_.bytes() + masks_.bytes();
}

}  // namespace inflight::grammar

// SPDX-License-Identifier: Apache-2.0
#include "grammar/state_masks.h"

#include <algorithm>

#include "grammar/stacks.h"
#include "grammar/trie_walk.h"

namespace inflight::grammar {

void StateMask::AddTo(std::span<uint32_t> mask) const {
  for (size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
  SetBits(few, mask);
}

uint64_t StateMask::bytes() const {
  return sizeof(*this) + few.size() * sizeof(few[0]) + words.size() * sizeof(words[0]) +
         exits.size() * sizeof(exits[0]) + exit_words.size() * sizeof(exit_words[0]);
}

StateMasks::StateMasks(const Automaton& automaton, std::shared_ptr<const TokenTrie> trie)
    : automaton_(automaton),
      trie_(std::move(trie)),
      classes_(ClassesWithin(automaton, trie_->longest)),
      kept_(classes_.num_classes) {}

StateMasks::~StateMasks() {
  for (const auto& kept : kept_) delete kept.load(std::memory_order_relaxed);
}

uint64_t StateMasks::bytes() const {
  return classes_.class_of.size() * sizeof(classes_.class_of[0]) + kept_.size() * sizeof(kept_[0]) +
         kept_bytes_.load(std::memory_order_relaxed);
}

const StateMask* StateMasks::Of(uint32_t id, Budget& budget, StateMask& scratch) {
  std::atomic<const StateMask*>& place = kept_[classes_.class_of[id]];
  if (const StateMask* known = place.load(std::memory_order_acquire)) return known;
  scratch = {};
  if (!Find(id, budget, scratch)) return nullptr;
  const uint64_t size = scratch.bytes();
  if (kept_bytes_.fetch_add(size, std::memory_order_relaxed) + size > kMaxKeptMaskBytes) {
    kept_bytes_.fetch_sub(size, std::memory_order_relaxed);
    return &scratch;
  }
  auto found = std::make_unique<const StateMask>(std::move(scratch));
  const StateMask* first = nullptr;
  if (place.compare_exchange_strong(first, found.get(), std::memory_order_acq_rel)) {
    return found.release();
  }
  kept_bytes_.fetch_sub(size, std::memory_order_relaxed);  // another thread was faster
  return first;
}

bool StateMasks::Find(uint32_t id, Budget& budget, StateMask& found) const {
  FramePool pool;
  TrieWalk walk(automaton_, *trie_);
  // By its bytes alone: what it calls and returns to are stacks of their own.
  const Stack start = {id, kUnknown};
  const bool is_done = walk.Below(TokenTrie::kRoot, {&start, 1}, pool, budget,
                                  [&](uint32_t node, const StepEnds& ends) {
                                    const std::span<const TokenId> tokens = trie_->TokensOf(node);
                                    found.depth = std::max(found.depth, ends.depth);
                                    found.few.insert(found.few.end(), tokens.begin(), tokens.end());
                                    if (ends.is_returned && trie_->HasChildren(node))
                                      found.exits.push_back(node);
                                  });
  if (!is_done) return false;
  const size_t num_words = (static_cast<size_t>(trie_->num_tokens) + 31) / 32;
  if (found.few.size() > num_words) {
    found.words.resize(num_words);
    SetBits(found.few, found.words);
    found.few.clear();
  }
  if (found.exits.size() > kFewExits) {
    found.exit_words.resize((trie_->num_nodes() + 31) / 32);
    for (const uint32_t node : found.exits) found.exit_words[node / 32] |= 1U << (node % 32);
    found.exits.clear();
  }
  found.few.shrink_to_fit();
  found.exits.shrink_to_fit();
  return true;
}

}  // namespace inflight::grammar

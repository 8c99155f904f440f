// SPDX-License-Identifier: Apache-2.0
// What may follow in a state whatever stands below it: found when a text first stands there, and
// kept for all texts of the guide.
//
// A token that is read without a return below the state may follow in any case. Where the bytes of
// a trie's node return, what its children need is asked of the frames below, text by text: these
// nodes are few (docs/reference/structured-output.md, "Masks").
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/budget.h"
#include "grammar/state_classes.h"
#include "grammar/token_trie.h"

namespace inflight::grammar {

inline constexpr size_t kFewExits = 64;
inline constexpr uint64_t kMaxKeptMaskBytes = uint64_t{64} << 20;  // of one guide

struct StateMask {
  std::vector<TokenId> few;          // tokens that may follow, where they are few
  std::vector<uint32_t> words;       // else a bit for each, [ceil(num_tokens / 32)]
  std::vector<uint32_t> exits;       // nodes with children whose bytes return, where they are few
  std::vector<uint32_t> exit_words;  // else a bit for each node, [ceil(num_nodes / 32)]
  uint32_t depth = 0;                // of the deepest stack on the way to any of these (StepEnds)

  bool HasExits() const { return !exits.empty() || !exit_words.empty(); }
  bool IsOneOfManyExits(uint32_t node) const {
    return (exit_words[node / 32] >> (node % 32) & 1U) != 0;
  }
  void AddTo(std::span<uint32_t> mask) const;
  uint64_t bytes() const;
};

// Any thread.
class StateMasks {
 public:
  StateMasks(const Automaton& automaton, std::shared_ptr<const TokenTrie> trie);
  ~StateMasks();
  StateMasks(const StateMasks&) = delete;
  StateMasks& operator=(const StateMasks&) = delete;

  // Of state `id`; `scratch` has it where no more may be kept. Null: the budget was spent.
  const StateMask* Of(uint32_t id, Budget& budget, StateMask& scratch);

  uint64_t bytes() const;

 private:
  bool Find(uint32_t id, Budget& budget, StateMask& found) const;

  const Automaton& automaton_;
  const std::shared_ptr<const TokenTrie> trie_;
  const StateClasses classes_;
  std::vector<std::atomic<const StateMask*>> kept_;  // [classes] null: not found so far
  std::atomic<uint64_t> kept_bytes_ = 0;
};

inline void SetBits(std::span<const TokenId> tokens, std::span<uint32_t> mask) {
  for (const TokenId token : tokens) {
    mask[static_cast<size_t>(token) / 32] |= 1U << (static_cast<uint32_t>(token) % 32);
  }
}

}  // namespace inflight::grammar

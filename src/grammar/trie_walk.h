// SPDX-License-Identifier: Apache-2.0
// Reads all tokens of a trie from a set of stacks, what they begin with alike once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/budget.h"
#include "grammar/stacks.h"
#include "grammar/token_trie.h"

namespace inflight::grammar {

class TrieWalk {
 public:
  TrieWalk(const Automaton& automaton, const TokenTrie& trie)
      : automaton_(automaton), trie_(trie) {}

  // Calls `visit(node, ends)` for each node below `node` whose bytes, behind it, can be read from
  // one of `start` at least, in the trie's order. `pool` is as before when it returns. False: the
  // budget was spent, or a set was too large.
  template <typename Visit>
  bool Below(uint32_t node, std::span<const Stack> start, FramePool& pool, Budget& budget,
             const Visit& visit) {
    const size_t first_size = pool.size();
    const bool is_done = Walk(node, start, pool, budget, visit);
    pool.CutTo(first_size);
    return is_done;
  }

 private:
  struct Level {
    size_t first_stack;  // [first_stack, size of stacks_) while the level is the last one
    size_t pool_size;    // before it
    uint32_t end;        // node
  };

  template <typename Visit>
  bool Walk(uint32_t node, std::span<const Stack> start, FramePool& pool, Budget& budget,
            const Visit& visit) {
    stacks_.assign(start.begin(), start.end());
    levels_.clear();
    levels_.push_back({0, pool.size(), trie_.nodes[node].end});
    for (uint32_t next = node + 1;;) {
      while (next == levels_.back().end) {
        stacks_.resize(levels_.back().first_stack);
        pool.CutTo(levels_.back().pool_size);
        levels_.pop_back();
        if (levels_.empty()) return true;
      }
      const size_t begin = levels_.back().first_stack;
      const size_t end = stacks_.size();
      const size_t pool_size = pool.size();
      StepEnds ends;
      if (!Step(automaton_, trie_.nodes[next].byte, begin, end, pool, stacks_, ends)) return false;
      const size_t num_stacks = stacks_.size() - end;
      // To find a stack among others takes as many steps as they are.
      if (!budget.Spend(1 + (end - begin) + num_stacks * num_stacks / 8)) return false;
      if (num_stacks > 0 || ends.is_returned || ends.is_whole) visit(next, ends);
      if (num_stacks > 0 && trie_.HasChildren(next)) {
        levels_.push_back({end, pool_size, trie_.nodes[next].end});
        ++next;
      } else {
        stacks_.resize(end);
        pool.CutTo(pool_size);
        next = trie_.nodes[next].end;
      }
    }
  }

  const Automaton& automaton_;
  const TokenTrie& trie_;
  std::vector<Stack> stacks_;
  std::vector<Level> levels_;
};

}  // namespace inflight::grammar

// SPDX-License-Identifier: Apache-2.0
// The expression of one rule as a nondeterministic automaton: Thompson's construction ("Regular
// Expression Search Algorithm", CACM 11(6), 1968), where a call of a rule is one symbol.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/budget.h"
#include "grammar/grammar.h"

namespace inflight::grammar {

struct Nfa {
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Edge {
    enum class Kind : uint8_t { kEmpty, kBytes, kCall };
    Kind kind;
    uint8_t first;  // kBytes: any byte of [first, last]
    uint8_t last;
    RuleId rule;  // kCall
    uint32_t target;
    uint32_t next;  // edge of the same state; kNone: the last
  };

  std::vector<Edge> edges;
  std::vector<uint32_t> heads;  // [states] the first edge of each; kNone: there is none
  uint32_t start = 0;
  uint32_t accept = 0;
};

// Spends a step for each edge and state; kResourceExhausted when none is left.
Result<Nfa> MakeNfa(const Grammar& grammar, RuleId rule, Budget& budget);

}  // namespace inflight::grammar

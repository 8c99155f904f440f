// SPDX-License-Identifier: Apache-2.0
// The deterministic automaton of one rule: in each state a byte leads to one state at most, and so
// does a text of each rule that may be called.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/budget.h"
#include "grammar/rule_nfa.h"

namespace inflight::grammar {

struct ByteEdge {
  uint8_t first;  // any byte of [first, last]
  uint8_t last;
  uint32_t target;
};

struct CallEdge {
  RuleId rule;
  uint32_t target;  // where a text of the rule leads
};

// State 0 is the start.
struct Dfa {
  struct State {
    uint32_t first_edge;  // edges [first_edge, first_edge of the next state), by their bytes
    uint32_t first_call;
    bool is_final;
  };
  std::vector<State> states;  // and one behind the last, for the ends of its edges and calls
  std::vector<ByteEdge> edges;
  std::vector<CallEdge> calls;

  uint32_t num_states() const { return static_cast<uint32_t>(states.size() - 1); }
};

// By the construction of subsets (Rabin and Scott, 1959). kResourceExhausted when the budget is
// spent, as by (a|b)*a(a|b){30}, whose subsets are a billion.
Result<Dfa> Determinize(const Nfa& nfa, Budget& budget);

// Any bytes up to and with the first place of `text`, which is not empty (Knuth, Morris and Pratt,
// 1977).
Dfa DfaUpTo(std::string_view text);

// Any bytes without `text`, which is not empty.
Dfa DfaWithout(std::string_view text);

}  // namespace inflight::grammar

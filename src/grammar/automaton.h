// SPDX-License-Identifier: Apache-2.0
// A grammar compiled: the automata of its rules side by side, which a stack of returns joins to a
// pushdown automaton.
//
// From every state the text can become whole: what cannot is taken away. No rule begins with
// itself, so that a text is read in a number of steps that its bytes bound.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/rule_dfa.h"
#include "inflight/status.h"

namespace inflight::grammar {

inline constexpr uint32_t kNoState = UINT32_MAX;
inline constexpr uint32_t kMaxStackDepth = 512;  // calls of rules within each other

class Automaton {
 public:
  struct State {
    uint32_t first_edge;
    uint32_t first_call;
    uint32_t table;  // of tables_; kNoState: its edges are few
    uint16_t num_edges;
    uint16_t depth;  // of calls that the way to the rule's end needs, at least
    bool has_calls;
    bool is_final;  // the rule may end here
    bool is_end;    // and has nothing more
    bool is_plain;  // bytes alone lead from it, and the rule does not end here
  };
  struct Call {
    uint32_t start;   // of the rule
    uint32_t target;  // where it returns to
    bool may_be_empty;
  };

  const State& state(uint32_t id) const { return states_[id]; }
  uint32_t num_states() const { return static_cast<uint32_t>(states_.size()); }
  uint32_t start() const { return start_; }  // of the root

  // kNoState: none.
  uint32_t Next(uint32_t id, uint8_t byte) const {
    const State& state = states_[id];
    if (state.table != kNoState) return tables_[state.table][byte];
    const ByteEdge* edge = edges_.data() + state.first_edge;
    for (const ByteEdge* end = edge + state.num_edges; edge != end; ++edge) {
      if (byte <= edge->last) return byte >= edge->first ? edge->target : kNoState;
    }
    return kNoState;
  }
  std::span<const ByteEdge> edges(const State& state) const {
    return std::span(edges_).subspan(state.first_edge, state.num_edges);
  }
  std::span<const Call> calls(uint32_t id) const {
    const uint32_t first = states_[id].first_call;
    return std::span(calls_).subspan(first, FirstCallBehind(id) - first);
  }
  uint64_t bytes() const;

 private:
  friend class AutomatonBuilder;
  uint32_t FirstCallBehind(uint32_t id) const {
    return id + 1 < states_.size() ? states_[id + 1].first_call
                                   : static_cast<uint32_t>(calls_.size());
  }

  std::vector<State> states_;
  std::vector<ByteEdge> edges_;
  std::vector<Call> calls_;
  std::vector<std::array<uint32_t, 256>> tables_;  // of states with many edges
  uint32_t start_ = 0;
};

// kInvalidArgument where no text matches, or a rule begins with itself; kResourceExhausted past the
// bounds of budget.h.
Result<Automaton> CompileAutomaton(const Grammar& grammar, Budget& budget);

}  // namespace inflight::grammar

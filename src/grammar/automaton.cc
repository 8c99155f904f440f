// SPDX-License-Identifier: Apache-2.0
#include "grammar/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "grammar/rule_nfa.h"

namespace inflight::grammar {
namespace {

constexpr uint32_t kMaxFewEdges = 4;  // that are looked through one by one
constexpr uint32_t kNoDepth = kMaxStackDepth + 1;

}  // namespace

uint64_t Automaton::bytes() const {
  return states_.size() * sizeof(State) + edges_.size() * sizeof(ByteEdge) +
         calls_.size() * sizeof(Call) + tables_.size() * sizeof(tables_[0]);
}

class AutomatonBuilder {
 public:
  AutomatonBuilder(const Grammar& grammar, Budget& budget) : grammar_(grammar), budget_(budget) {}

  Result<Automaton> Build() {
    RETURN_IF_ERROR(FindReachedRules());
    RETURN_IF_ERROR(FindDepths());
    RETURN_IF_ERROR(CheckBeginnings());
    RETURN_IF_ERROR(Join());
    return std::move(out_);
  }

 private:
  // A state's number among those of all rules.
  uint32_t IdOf(RuleId rule, uint32_t state) const { return first_ids_[rule] + state; }

  // Compiles the rules that the root leads to.
  Status FindReachedRules() {
    dfas_.resize(grammar_.rules().size());
    first_ids_.resize(dfas_.size(), 0);
    order_ = {grammar_.root};
    std::vector<bool> is_reached(dfas_.size());
    is_reached[grammar_.root] = true;
    for (size_t i = 0; i < order_.size(); ++i) {
      const RuleId rule = order_[i];
      dfas_[rule] = grammar_.rules()[rule].dfa;
      if (dfas_[rule] == nullptr) {
        ASSIGN_OR_RETURN(const Nfa nfa, MakeNfa(grammar_, rule, budget_));
        ASSIGN_OR_RETURN(Dfa made, Determinize(nfa, budget_));
        dfas_[rule] = std::make_shared<const Dfa>(std::move(made));
      }
      const Dfa& dfa = *dfas_[rule];
      first_ids_[rule] = num_states_;
      num_states_ += dfa.num_states();
      num_bytes_ += dfa.states.size() * sizeof(Automaton::State) +
                    dfa.edges.size() * sizeof(ByteEdge) +
                    dfa.calls.size() * sizeof(Automaton::Call);
      if (num_bytes_ > kMaxCompiledBytes) return OutOfCompiledBytes();
      for (const CallEdge& call : dfa.calls) {
        if (is_reached[call.rule]) continue;
        is_reached[call.rule] = true;
        order_.push_back(call.rule);
      }
    }
    return Status::Ok();
  }

  // depths_[state]: how many calls within each other a way to the rule's end needs at least, found
  // from the ends backwards, those of fewer calls first. kNoDepth: no way leads there.
  Status FindDepths() {
    struct Back {
      uint32_t from;
      RuleId rule;    // that is called; num_rules: a byte
      uint32_t next;  // to the same state; kNoState: the last
    };
    const auto num_rules = static_cast<RuleId>(dfas_.size());
    std::vector<Back> backs;
    std::vector<uint32_t> heads(num_states_, kNoState);  // of the ways to each state
    const auto add_back = [&](uint32_t from, RuleId rule, uint32_t target) {
      backs.push_back({from, rule, heads[target]});
      heads[target] = static_cast<uint32_t>(backs.size() - 1);
    };
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> callers(num_rules);  // from, target
    depths_.assign(num_states_, kNoDepth);
    std::vector<std::vector<uint32_t>> by_depth(kNoDepth + 1);
    for (const RuleId rule : order_) {
      const Dfa& dfa = *dfas_[rule];
      for (uint32_t s = 0; s < dfa.num_states(); ++s) {
        const uint32_t id = IdOf(rule, s);
        for (uint32_t e = dfa.states[s].first_edge; e < dfa.states[s + 1].first_edge; ++e) {
          add_back(id, num_rules, IdOf(rule, dfa.edges[e].target));
        }
        for (uint32_t c = dfa.states[s].first_call; c < dfa.states[s + 1].first_call; ++c) {
          const uint32_t target = IdOf(rule, dfa.calls[c].target);
          add_back(id, dfa.calls[c].rule, target);
          callers[dfa.calls[c].rule].emplace_back(id, target);
        }
        if (dfa.states[s].is_final) by_depth[0].push_back(id);
      }
      if (!budget_.Spend(dfa.edges.size() + dfa.calls.size())) return OutOfSteps();
    }
    std::vector<RuleId> rule_of_start(num_states_, num_rules);
    for (const RuleId rule : order_) rule_of_start[IdOf(rule, 0)] = rule;
    for (uint32_t depth = 0; depth < kNoDepth; ++depth) {
      for (size_t i = 0; i < by_depth[depth].size(); ++i) {
        const uint32_t id = by_depth[depth][i];
        if (depths_[id] <= depth) continue;
        depths_[id] = depth;
        for (uint32_t b = heads[id]; b != kNoState; b = backs[b].next) {
          const Back& back = backs[b];
          const uint32_t called = back.rule == num_rules ? 0 : DepthOfCall(back.rule);
          by_depth[std::min(kNoDepth, std::max(depth, called))].push_back(back.from);
        }
        if (rule_of_start[id] == num_rules) continue;
        for (const auto& [from, target] : callers[rule_of_start[id]]) {
          if (depths_[target] <= depth + 1) by_depth[depth + 1].push_back(from);
        }
      }
    }
    if (depths_[IdOf(grammar_.root, 0)] == kNoDepth) {
      return InvalidArgument("no text matches: each way through the guide is without an end");
    }
    return Status::Ok();
  }
  uint32_t DepthOfCall(RuleId rule) const { return std::min(kNoDepth, depths_[IdOf(rule, 0)] + 1); }

  // Whether a rule may be empty: its start leads to an end by calls of such rules alone.
  Status FindEmptyRules() {
    is_empty_.assign(dfas_.size(), false);
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (auto place = order_.rbegin(); place != order_.rend(); ++place) {
        const RuleId rule = *place;
        if (is_empty_[rule]) continue;
        const Dfa& dfa = *dfas_[rule];
        const std::vector<uint32_t> reached = ReachedWithoutBytes(rule);
        if (!budget_.Spend(1 + reached.size() + dfa.num_states() / 64)) return OutOfSteps();
        if (std::ranges::any_of(reached, [&](uint32_t s) { return dfa.states[s].is_final; })) {
          is_empty_[rule] = has_changed = true;
        }
      }
    }
    return Status::Ok();
  }

  std::vector<uint32_t> ReachedWithoutBytes(RuleId rule) {
    const Dfa& dfa = *dfas_[rule];
    std::vector<uint32_t> reached = {0};
    std::vector<bool> is_reached(dfa.num_states());
    is_reached[0] = true;
    for (size_t i = 0; i < reached.size(); ++i) {
      const uint32_t s = reached[i];
      for (uint32_t c = dfa.states[s].first_call; c < dfa.states[s + 1].first_call; ++c) {
        const CallEdge& call = dfa.calls[c];
        if (!is_empty_[call.rule] || is_reached[call.target]) continue;
        is_reached[call.target] = true;
        reached.push_back(call.target);
      }
    }
    return reached;
  }

  // Refuses rules that begin with themselves.
  Status CheckBeginnings() {
    RETURN_IF_ERROR(FindEmptyRules());
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<std::vector<RuleId>> begins(dfas_.size());
    for (const RuleId rule : order_) {
      const Dfa& dfa = *dfas_[rule];
      for (const uint32_t s : ReachedWithoutBytes(rule)) {
        for (uint32_t c = dfa.states[s].first_call; c < dfa.states[s + 1].first_call; ++c) {
          if (depths_[IdOf(dfa.calls[c].rule, 0)] != kNoDepth) {
            begins[rule].push_back(dfa.calls[c].rule);
          }
        }
      }
    }
    std::vector<Mark> marks(dfas_.size(), Mark::kNew);
    for (const RuleId first : order_) {
      if (marks[first] != Mark::kNew) continue;
      std::vector<std::pair<RuleId, size_t>> path = {{first, 0}};
      marks[first] = Mark::kOpen;
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next == begins[rule].size()) {
          marks[rule] = Mark::kDone;
          path.pop_back();
          continue;
        }
        const RuleId called = begins[rule][next++];
        if (marks[called] == Mark::kOpen) {
          return InvalidArgument(
              fmt::format("rule {} begins with itself; write what repeats as ( ... )*",
                          grammar_.rules()[called].name));
        }
        if (marks[called] == Mark::kDone) continue;
        marks[called] = Mark::kOpen;
        path.emplace_back(called, 0);
      }
    }
    return Status::Ok();
  }

  Status Join() {
    out_.states_.reserve(num_states_);
    for (const RuleId rule : order_) {
      const Dfa& dfa = *dfas_[rule];
      for (uint32_t s = 0; s < dfa.num_states(); ++s) {
        JoinState(rule, dfa, s);
        if (out_.bytes() > kMaxCompiledBytes) return OutOfCompiledBytes();
      }
      dfas_[rule].reset();
    }
    for (Automaton::State& state : out_.states_) {
      state.is_end = state.is_final && state.num_edges == 0 && !state.has_calls;
    }
    out_.start_ = IdOf(grammar_.root, 0);
    return Status::Ok();
  }

  void JoinState(RuleId rule, const Dfa& dfa, uint32_t s) {
    const uint32_t id = IdOf(rule, s);
    const bool is_alive = depths_[id] != kNoDepth;
    Automaton::State state = {.first_edge = static_cast<uint32_t>(out_.edges_.size()),
                              .first_call = static_cast<uint32_t>(out_.calls_.size()),
                              .table = kNoState,
                              .num_edges = 0,
                              .depth = static_cast<uint16_t>(depths_[id]),
                              .has_calls = false,
                              .is_final = dfa.states[s].is_final,
                              .is_end = false,
                              .is_plain = false};
    for (uint32_t e = dfa.states[s].first_edge; is_alive && e < dfa.states[s + 1].first_edge; ++e) {
      ByteEdge edge = dfa.edges[e];
      edge.target = IdOf(rule, edge.target);
      if (depths_[edge.target] != kNoDepth) out_.edges_.push_back(edge);
    }
    state.num_edges = static_cast<uint16_t>(out_.edges_.size() - state.first_edge);
    for (uint32_t c = dfa.states[s].first_call; is_alive && c < dfa.states[s + 1].first_call; ++c) {
      const CallEdge& call = dfa.calls[c];
      const uint32_t start = IdOf(call.rule, 0);
      const uint32_t target = IdOf(rule, call.target);
      if (depths_[start] == kNoDepth || depths_[target] == kNoDepth) continue;
      out_.calls_.push_back({start, target, is_empty_[call.rule]});
      state.has_calls = true;
    }
    state.is_plain = !state.is_final && !state.has_calls;
    if (state.num_edges > kMaxFewEdges) {
      state.table = static_cast<uint32_t>(out_.tables_.size());
      std::array<uint32_t, 256>& table = out_.tables_.emplace_back();
      table.fill(kNoState);
      for (uint32_t e = state.first_edge; e < out_.edges_.size(); ++e) {
        const ByteEdge& edge = out_.edges_[e];
        std::fill(table.begin() + edge.first, table.begin() + edge.last + 1, edge.target);
      }
    }
    out_.states_.push_back(state);
  }

  const Grammar& grammar_;
  Budget& budget_;
  std::vector<std::shared_ptr<const Dfa>> dfas_;  // [rules] of those that are reached
  std::vector<RuleId> order_;                     // of these
  std::vector<uint32_t> first_ids_;               // [rules] of their states
  std::vector<uint32_t> depths_;                  // [states]
  std::vector<bool> is_empty_;                    // [rules]
  uint32_t num_states_ = 0;
  uint64_t num_bytes_ = 0;
  Automaton out_;
};

Result<Automaton> CompileAutomaton(const Grammar& grammar, Budget& budget) {
  return AutomatonBuilder(grammar, budget).Build();
}

}  // namespace inflight::grammar

// SPDX-License-Identifier: Apache-2.0
#include "grammar/rule_dfa.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

namespace inflight::grammar {
namespace {

using Edge = Nfa::Edge;

// What states and the members of their sets cost: it bounds their memory.
constexpr uint64_t kStepsPerState = 40;
constexpr uint64_t kStepsPerMember = 8;

class Determinizer {
 public:
  Determinizer(const Nfa& nfa, Budget& budget)
      : nfa_(nfa), budget_(budget), seen_(nfa.heads.size(), 0) {}

  Result<Dfa> Run() {
    const uint32_t start = nfa_.start;
    (void)StateOf({start});
    for (uint32_t state = 0; state < sets_.size() && !is_over_; ++state) {
      dfa_.states.push_back({static_cast<uint32_t>(dfa_.edges.size()),
                             static_cast<uint32_t>(dfa_.calls.size()), /*is_final=*/false});
      Expand(state);
    }
    if (is_over_) return OutOfSteps();
    dfa_.states.push_back({static_cast<uint32_t>(dfa_.edges.size()),
                           static_cast<uint32_t>(dfa_.calls.size()), /*is_final=*/false});
    return std::move(dfa_);
  }

 private:
  // The state of a set and all that it leads to without a symbol. A set is known by those of its
  // members that have symbols, and the one that accepts.
  uint32_t StateOf(std::vector<uint32_t> set) {
    ++stamp_;
    std::vector<uint32_t> members;
    std::erase_if(set, [&](uint32_t s) { return std::exchange(seen_[s], stamp_) == stamp_; });
    while (!set.empty() && !is_over_) {
      const uint32_t s = set.back();
      set.pop_back();
      bool has_symbol = s == nfa_.accept;
      for (uint32_t e = nfa_.heads[s]; e != Nfa::kNone; e = nfa_.edges[e].next) {
        if (!budget_.Spend(1)) is_over_ = true;
        const Edge& edge = nfa_.edges[e];
        if (edge.kind != Edge::Kind::kEmpty) {
          has_symbol = true;
        } else if (seen_[edge.target] != stamp_) {
          seen_[edge.target] = stamp_;
          set.push_back(edge.target);
        }
      }
      if (has_symbol) members.push_back(s);
    }
    std::ranges::sort(members);
    if (!budget_.Spend(1 + kStepsPerMember * members.size())) is_over_ = true;
    const std::string key(reinterpret_cast<const char*>(members.data()),
                          members.size() * sizeof(uint32_t));
    const auto [place, is_new] = ids_.try_emplace(key, static_cast<uint32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(std::move(members));
      if (!budget_.Spend(kStepsPerState)) is_over_ = true;
    }
    return place->second;
  }

  void Expand(uint32_t state) {
    const std::vector<uint32_t> members = std::move(sets_[state]);
    sets_[state].clear();
    byte_edges_.clear();
    calls_.clear();
    for (const uint32_t s : members) {
      if (s == nfa_.accept) dfa_.states[state].is_final = true;
      for (uint32_t e = nfa_.heads[s]; e != Nfa::kNone; e = nfa_.edges[e].next) {
        const Edge& edge = nfa_.edges[e];
        if (edge.kind == Edge::Kind::kBytes) byte_edges_.push_back(&edge);
        if (edge.kind == Edge::Kind::kCall) calls_.push_back(&edge);
      }
    }
    ExpandBytes();
    ExpandCalls();
  }

  void ExpandBytes() {
    if (byte_edges_.size() == 1) {
      return AddEdge(byte_edges_[0]->first, byte_edges_[0]->last, {byte_edges_[0]->target});
    }
    std::array<bool, 257> begins = {};  // whether another set of targets may begin here
    for (const Edge* edge : byte_edges_) begins[edge->first] = begins[edge->last + 1] = true;
    std::array<uint16_t, 257> part_of = {};
    std::vector<uint16_t> firsts;
    for (uint16_t byte = 0; byte < 257; ++byte) {
      if (begins[byte]) firsts.push_back(byte);
      part_of[byte] = static_cast<uint16_t>(firsts.size());
    }
    std::vector<std::vector<uint32_t>> targets(firsts.size());
    for (const Edge* edge : byte_edges_) {
      for (uint16_t part = part_of[edge->first]; part <= part_of[edge->last]; ++part) {
        if (!budget_.Spend(1)) is_over_ = true;
        targets[part - 1].push_back(edge->target);
      }
    }
    for (size_t i = 0; i + 1 < firsts.size() && !is_over_; ++i) {
      if (targets[i].empty()) continue;
      AddEdge(static_cast<uint8_t>(firsts[i]), static_cast<uint8_t>(firsts[i + 1] - 1),
              std::move(targets[i]));
    }
  }

  void AddEdge(uint8_t first, uint8_t last, std::vector<uint32_t> targets) {
    const uint32_t target = StateOf(std::move(targets));
    const bool is_first = dfa_.edges.size() == dfa_.states.back().first_edge;
    if (!is_first && dfa_.edges.back().target == target && dfa_.edges.back().last + 1 == first) {
      dfa_.edges.back().last = last;
    } else {
      dfa_.edges.push_back({first, last, target});
    }
  }

  void ExpandCalls() {
    std::ranges::sort(calls_, {}, [](const Edge* edge) { return edge->rule; });
    for (size_t i = 0; i < calls_.size() && !is_over_;) {
      const RuleId rule = calls_[i]->rule;
      std::vector<uint32_t> targets;
      for (; i < calls_.size() && calls_[i]->rule == rule; ++i)
        targets.push_back(calls_[i]->target);
      const uint32_t target = StateOf(std::move(targets));
      dfa_.calls.push_back({rule, target});
    }
  }

  const Nfa& nfa_;
  Budget& budget_;
  Dfa dfa_;
  std::vector<std::vector<uint32_t>> sets_;  // [states] its members, until it is expanded
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<uint32_t> seen_;  // [states of the NFA] stamp of the set that has it
  uint32_t stamp_ = 0;
  std::vector<const Edge*> byte_edges_;  // of the state that is expanded
  std::vector<const Edge*> calls_;
  bool is_over_ = false;
};

}  // namespace

Result<Dfa> Determinize(const Nfa& nfa, Budget& budget) { return Determinizer(nfa, budget).Run(); }

Dfa DfaUpTo(std::string_view text) {
  Dfa dfa;
  // State i has read the first i bytes of the text, and no more of it; `restart` is the state that
  // has read what stands behind the first of them.
  std::vector<std::array<uint32_t, 256>> rows(text.size());
  uint32_t restart = 0;
  for (uint32_t state = 0; state < text.size(); ++state) {
    const auto byte = static_cast<uint8_t>(text[state]);
    std::array<uint32_t, 256>& row = rows[state];
    if (state > 0) {
      row = rows[restart];
      restart = row[byte];
    }
    row[byte] = state + 1;
    dfa.states.push_back({static_cast<uint32_t>(dfa.edges.size()), 0, /*is_final=*/false});
    for (uint32_t first = 0; first < 256;) {
      uint32_t last = first;
      while (last < 255 && row[last + 1] == row[first]) ++last;
      dfa.edges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), row[first]});
      first = last + 1;
    }
  }
  const auto num_edges = static_cast<uint32_t>(dfa.edges.size());
  dfa.states.push_back({num_edges, 0, /*is_final=*/true});
  dfa.states.push_back({num_edges, 0, /*is_final=*/false});
  return dfa;
}

Dfa DfaWithout(std::string_view text) {
  Dfa dfa = DfaUpTo(text);
  for (Dfa::State& state : dfa.states) state.is_final = !state.is_final;
  return dfa;
}

}  // namespace inflight::grammar

// SPDX-License-Identifier: Apache-2.0
#include "grammar/rule_nfa.h"

#include <algorithm>
#include <tuple>

namespace inflight::grammar {
namespace {

using Edge = Nfa::Edge;

// Of a state or an edge: it bounds their memory too.
constexpr uint64_t kStepsPerPart = 4;

class NfaBuilder {
 public:
  NfaBuilder(const Grammar& grammar, Budget& budget) : grammar_(grammar), budget_(budget) {}

  bool Build(RuleId rule) {
    nfa_.start = AddState();
    nfa_.accept = AddState();
    Add(grammar_.rules()[rule].body, nfa_.start, nfa_.accept);
    return !is_over_;
  }
  Nfa Take() { return std::move(nfa_); }

 private:
  uint32_t AddState() {
    if (!budget_.Spend(kStepsPerPart)) is_over_ = true;
    nfa_.heads.push_back(Nfa::kNone);
    return static_cast<uint32_t>(nfa_.heads.size() - 1);
  }
  void AddEdge(uint32_t from, Edge edge) {
    if (!budget_.Spend(kStepsPerPart)) is_over_ = true;
    edge.next = nfa_.heads[from];
    nfa_.heads[from] = static_cast<uint32_t>(nfa_.edges.size());
    nfa_.edges.push_back(edge);
  }
  void AddEmpty(uint32_t from, uint32_t to) {
    AddEdge(
        from,
        {.kind = Edge::Kind::kEmpty, .first = 0, .last = 0, .rule = 0, .target = to, .next = 0});
  }
  void AddBytes(uint32_t from, uint8_t first, uint8_t last, uint32_t to) {
    AddEdge(from, {.kind = Edge::Kind::kBytes,
                   .first = first,
                   .last = last,
                   .rule = 0,
                   .target = to,
                   .next = 0});
  }

  // The texts of a node lead from `from` to `to`. Recurses as deep as nodes nest, which parsers
  // bound (kMaxNesting).
  void Add(NodeId id, uint32_t from, uint32_t to) {
    if (is_over_) return;
    const Node& node = grammar_.node(id);
    switch (node.kind) {
      case Node::Kind::kBytes:
        return AddText(grammar_.bytes(node), from, to);
      case Node::Kind::kChars:
        return AddChars(grammar_.chars(node), from, to);
      case Node::Kind::kSequence:
        return AddSequence(grammar_.children(node), from, to);
      case Node::Kind::kChoice:
        for (const NodeId child : grammar_.children(node)) Add(child, from, to);
        return;
      case Node::Kind::kRepeat:
        return AddRepeat(node, from, to);
      case Node::Kind::kList:
        return AddList(grammar_.children(node), from, to);
      case Node::Kind::kCall:
        return AddEdge(from, {.kind = Edge::Kind::kCall,
                              .first = 0,
                              .last = 0,
                              .rule = node.first,
                              .target = to,
                              .next = 0});
    }
  }

  void AddText(std::string_view text, uint32_t from, uint32_t to) {
    if (text.empty()) return AddEmpty(from, to);
    for (size_t i = 0; i < text.size() && !is_over_; ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      const uint32_t next = i + 1 == text.size() ? to : AddState();
      AddBytes(from, byte, byte, next);
      from = next;
    }
  }

  // Ends that characters share are there once.
  void AddChars(std::span<const CharRange> ranges, uint32_t from, uint32_t to) {
    tails_.clear();
    for (const CharRange& range : ranges) {
      for (const ByteRanges& bytes : Utf8Ranges(range)) {
        uint32_t behind = to;
        for (int i = bytes.size - 1; i > 0 && !is_over_; --i) {
          behind = TailState(bytes.first[i], bytes.last[i], behind);
        }
        AddBytes(from, bytes.first[0], bytes.last[0], behind);
      }
    }
  }
  uint32_t TailState(uint8_t first, uint8_t last, uint32_t behind) {
    const auto key = std::tuple(first, last, behind);
    const auto known = std::ranges::find(tails_, key, &Tail::key);
    // As long as they are few: a class of many characters has few whose ends are shared.
    if (known != tails_.end()) return known->state;
    const uint32_t state = AddState();
    AddBytes(state, first, last, behind);
    if (tails_.size() < kMaxTails) tails_.push_back({key, state});
    return state;
  }

  void AddSequence(std::span<const NodeId> parts, uint32_t from, uint32_t to) {
    if (parts.empty()) return AddEmpty(from, to);
    for (size_t i = 0; i < parts.size() && !is_over_; ++i) {
      const uint32_t next = i + 1 == parts.size() ? to : AddState();
      Add(parts[i], from, next);
      from = next;
    }
  }

  // Two chains of states, [before each part]: nothing is written so far, and something is. Both
  // lead to the part, the second one by the separator.
  void AddList(std::span<const NodeId> children, uint32_t from, uint32_t to) {
    uint32_t none = from;
    uint32_t some = AddState();
    for (size_t i = 1; i < children.size() && !is_over_; i += 2) {
      const bool is_required = children[i + 1] != 0;
      const uint32_t part = AddState();
      const uint32_t next_none = AddState();
      const uint32_t next_some = AddState();
      AddEmpty(none, part);
      Add(children[0], some, part);
      Add(children[i], part, next_some);
      if (!is_required) {
        AddEmpty(none, next_none);
        AddEmpty(some, next_some);
      }
      none = next_none;
      some = next_some;
    }
    AddEmpty(some, to);
  }

  void AddRepeat(const Node& node, uint32_t from, uint32_t to) {
    const NodeId part = grammar_.children(node)[0];
    for (uint32_t i = 0; i < node.min && !is_over_; ++i) from = AddOne(part, from);
    if (node.max == kUnlimited) {
      const uint32_t loop = AddState();
      AddEmpty(from, loop);
      Add(part, loop, loop);
      return AddEmpty(loop, to);
    }
    AddEmpty(from, to);
    for (uint32_t i = node.min; i < node.max && !is_over_; ++i) {
      from = AddOne(part, from);
      AddEmpty(from, to);
    }
  }
  uint32_t AddOne(NodeId part, uint32_t from) {
    const uint32_t behind = AddState();
    Add(part, from, behind);
    return behind;
  }

  static constexpr size_t kMaxTails = 64;
  struct Tail {
    std::tuple<uint8_t, uint8_t, uint32_t> key;
    uint32_t state;
  };

  const Grammar& grammar_;
  Budget& budget_;
  Nfa nfa_;
  std::vector<Tail> tails_;  // of the class that is being added
  bool is_over_ = false;
};

}  // namespace

Result<Nfa> MakeNfa(const Grammar& grammar, RuleId rule, Budget& budget) {
  NfaBuilder builder(grammar, budget);
  if (!builder.Build(rule)) return OutOfSteps();
  return builder.Take();
}

}  // namespace inflight::grammar

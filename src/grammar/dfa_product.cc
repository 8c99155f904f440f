// SPDX-License-Identifier: Apache-2.0
#include "grammar/dfa_product.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace inflight::grammar {
namespace {

// Of a state of both: it bounds their memory.
constexpr uint64_t kStepsPerPair = 40;

constexpr uint32_t kNowhere = UINT32_MAX;  // where no byte leads back from

std::span<const ByteEdge> EdgesOf(const Dfa& dfa, uint32_t state) {
  if (state == kNowhere) return {};
  const uint32_t first = dfa.states[state].first_edge;
  return std::span(dfa.edges).subspan(first, dfa.states[state + 1].first_edge - first);
}

class Product {
 public:
  Product(const Dfa& a, const Dfa& b, bool is_difference, Budget& budget)
      : a_(a), b_(b), is_difference_(is_difference), budget_(budget) {}

  Result<Dfa> Run() {
    (void)StateOf(0, 0);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const auto [a, b] = pairs_[i];
      const bool is_in_b = b != kNowhere && b_.states[b].is_final;
      out_.states.push_back({static_cast<uint32_t>(out_.edges.size()), 0,
                             a_.states[a].is_final && is_in_b != is_difference_});
      Expand(a, b);
      if (is_over_) return OutOfSteps();
    }
    out_.states.push_back({static_cast<uint32_t>(out_.edges.size()), 0, /*is_final=*/false});
    return std::move(out_);
  }

 private:
  uint32_t StateOf(uint32_t a, uint32_t b) {
    const uint64_t key = (uint64_t{a} << 32) | b;
    const auto [place, is_new] = ids_.try_emplace(key, static_cast<uint32_t>(pairs_.size()));
    if (is_new) {
      pairs_.emplace_back(a, b);
      if (!budget_.Spend(kStepsPerPair)) is_over_ = true;
    }
    return place->second;
  }

  void Expand(uint32_t a, uint32_t b) {
    const std::span<const ByteEdge> others = EdgesOf(b_, b);
    auto other = others.begin();
    for (const ByteEdge& edge : EdgesOf(a_, a)) {
      // Byte by byte of the edge, in the steps that the edges of b cut it into.
      for (uint32_t first = edge.first; first <= edge.last;) {
        if (!budget_.Spend(1)) is_over_ = true;
        while (other != others.end() && other->last < first) ++other;
        const bool is_in = other != others.end() && other->first <= first;
        uint32_t last = edge.last;
        if (is_in) last = std::min<uint32_t>(last, other->last);
        if (!is_in && other != others.end()) last = std::min<uint32_t>(last, other->first - 1U);
        if (is_in || is_difference_) {
          out_.edges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last),
                                StateOf(edge.target, is_in ? other->target : kNowhere)});
        }
        first = last + 1;
      }
    }
  }

  const Dfa& a_;
  const Dfa& b_;
  const bool is_difference_;
  Budget& budget_;
  Dfa out_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;  // [states] of both automata
  std::unordered_map<uint64_t, uint32_t> ids_;
  bool is_over_ = false;
};

}  // namespace

Result<Dfa> Intersect(const Dfa& a, const Dfa& b, Budget& budget) {
  return Product(a, b, /*is_difference=*/false, budget).Run();
}

Result<Dfa> Subtract(const Dfa& a, const Dfa& b, Budget& budget) {
  return Product(a, b, /*is_difference=*/true, budget).Run();
}

bool Matches(const Dfa& dfa, std::string_view text) {
  uint32_t state = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const auto edges = EdgesOf(dfa, state);
    const auto edge = std::ranges::find_if(
        edges, [&](const ByteEdge& e) { return e.first <= byte && byte <= e.last; });
    if (edge == edges.end()) return false;
    state = edge->target;
  }
  return dfa.states[state].is_final;
}

}  // namespace inflight::grammar

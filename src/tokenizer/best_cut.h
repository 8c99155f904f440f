// SPDX-License-Identifier: Apache-2.0
// Of all ways to cut a text into pieces, the one of the largest sum of scores (arXiv:1804.10959,
// section 3.1; Viterbi).
//
// Of equal sums the one found first stays (the piece that begins earlier). `Score` is the type that
// sums are kept in: cuts that are nearly equal are decided by how it rounds.
// Cost: text bytes times the longest piece, no allocation once `nodes` has grown.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "tokenizer/model.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {

// The best cut that ends at a byte offset: its last piece.
template <typename Score>
struct CutNode {
  Score score;
  int32_t begin;  // -1: no piece ends here
  TokenId id;
};

template <typename Score>
struct CutScratch final : ModelScratch {
  std::vector<CutNode<Score>> nodes;  // by offset, [text bytes + 1]
  std::vector<int32_t> ends;

  size_t grown_bytes() const override {
    return nodes.capacity() * sizeof(nodes[0]) + ends.capacity() * sizeof(ends[0]);
  }
};

template <typename Score>
struct CutRules {
  Score unknown_score;  // of a character that is no piece
  TokenId unknown_id;
  Score max_sum;  // sums beyond are re-based, so that they keep their precision
};

// Fills `nodes`, [text bytes + 1]. `score_of` is asked about the units of `trie` where pieces end.
// True if a character that is no piece was the best that ends somewhere, for a while at least.
template <typename Score, typename ScoreOf>
bool FindBestCut(std::string_view text, const PieceTrie& trie, const ScoreOf& score_of,
                 const CutRules<Score>& rules, std::vector<CutNode<Score>>& nodes) {
  nodes.assign(text.size() + 1, {0, -1, -1});
  const auto offer = [&nodes](size_t end, size_t begin, Score score, TokenId id) {
    CutNode<Score>& node = nodes[end];
    if (node.begin >= 0 && !(score > node.score)) return false;
    node = {score, static_cast<int32_t>(begin), id};
    return true;
  };
  bool took_unknown = false;
  size_t furthest = 0;  // end of a piece seen so far
  for (size_t begin = 0; begin < text.size();) {
    Score so_far = nodes[begin].score;
    if (std::fabs(so_far) > rules.max_sum) {
      nodes[begin].score = 0;
      for (size_t i = begin + 1; i <= furthest; ++i) {
        if (nodes[i].begin >= 0) nodes[i].score -= so_far;
      }
      so_far = 0;
    }
    const uint32_t size = CharAt(text.data() + begin).size;
    bool has_single = false;
    uint32_t trie_node = PieceTrie::kRoot;
    for (size_t end = begin; end < text.size();) {
      const PieceTrie::Unit* unit = trie.Step(trie_node, static_cast<uint8_t>(text[end]));
      if (unit == nullptr) break;
      ++end;
      if (unit->id < 0) continue;
      offer(end, begin, score_of(*unit) + so_far, unit->id);
      furthest = std::max(furthest, end);
      has_single |= end - begin == size;
    }
    if (!has_single) {
      took_unknown |= offer(begin + size, begin, rules.unknown_score + so_far, rules.unknown_id);
      furthest = std::max<size_t>(furthest, begin + size);
    }
    begin += size;
  }
  return took_unknown;
}

// The ends of the pieces of the best cut, last one first.
template <typename Score>
void TraceCut(const std::vector<CutNode<Score>>& nodes, std::vector<int32_t>& ends) {
  ends.clear();
  for (auto end = static_cast<int32_t>(nodes.size()) - 1; end > 0;) {
    ends.push_back(end);
    end = nodes[static_cast<size_t>(end)].begin;
  }
}

}  // namespace inflight::tokenizer

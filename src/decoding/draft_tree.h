// SPDX-License-Identifier: Apache-2.0
// A tree of drafts: several continuations of a sequence that one step judges together
// (arXiv:2305.09781, arXiv:2401.10774). Its root is the sequence's newest token, which is no draft;
// a node of depth d is a token that may come d places behind it. Who proposes the tokens says what
// a node's choices mean: of Medusa ranks among the best tokens of the head of each depth, of EAGLE
// among those behind the node's own parent.
//
// Nodes stand in the order of their worth, parents before children, so that the first n of a tree
// are a tree: a step may take as many as pay.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight::decoding {

class DraftTree {
 public:
  static constexpr int kMaxNodes = 63;     // and the root: the bits of a mask (ops/attention.h)
  static constexpr int kMaxChoices = 256;  // of a depth

  // Which choice is taken at each depth, from the root to a node.
  using Path = std::vector<int>;

  struct Node {
    int parent = -1;  // which node; -1 = the root
    int depth = 1;
    int choice = 0;  // of its depth, from 0
    // Bit 63 - j: node j lies on the path to this one, or is it.
    uint64_t path_bits = 0;
    double chance = 0;  // a guess of how often it is accepted, until some were judged
  };

  // A node for each path, which stand from the most to the least worth. kInvalidArgument
  // "medusa_choices" names the path that has no place in a tree: an empty one, one that comes twice
  // or whose beginning is none of the paths, one of more than `max_depth` choices, a choice outside
  // [0, kMaxChoices); likewise more paths than kMaxNodes, or none.
  static Result<DraftTree> Make(std::span<const Path> paths, int max_depth);

  // The 63 paths that Medusa's authors found best for heads of Vicuna-7B, and upstream's default
  // (FasterDecoding/Medusa/medusa/model/medusa_choices.py, mc_sim_7b_63), but for those deeper than
  // `max_depth`.
  static DraftTree Default(int max_depth);

  // The kMaxNodes likeliest paths of at most `max_depth` choices, by the guess that `chance` begins
  // with.
  static DraftTree Likely(int max_depth);

  int size() const { return static_cast<int>(nodes_.size()); }
  const Node& operator[](int node) const { return nodes_[static_cast<size_t>(node)]; }

  // Of the first `num_nodes` nodes: how deep they go, and how many choices a depth has (1 = the
  // first).
  int Depth(int num_nodes) const;
  int NumChoices(int depth, int num_nodes) const;

  // The child of `node` (-1: of the root) among the drafts' nodes that is `token`; -1: there is
  // none. `drafts` are the tokens of the first nodes.
  int Child(int node, TokenId token, std::span<const TokenId> drafts) const;

  // What node `node` sees, where `num_nodes` nodes are computed as the last places of a sequence of
  // `num_places`: PagedBatch::tree_masks of ops/attention.h.
  int64_t Mask(int node, int num_nodes, int num_places) const;

  void Cut(int num_nodes);  // to the first ones; at most size()

 private:
  std::vector<Node> nodes_;
};

}  // namespace inflight::decoding

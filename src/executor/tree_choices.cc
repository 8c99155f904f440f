// SPDX-License-Identifier: Apache-2.0
#include "executor/tree_choices.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "decoding/best_tokens.h"
#include "decoding/weights.h"

namespace inflight::executor {
namespace {

using decoding::DraftTree;
using decoding::GuidedSlot;
using decoding::GuideVerdict;

constexpr int kMaskWordBits = 32;

// The tokens that may come behind `node`, a bit each; empty where there are none.
std::vector<uint32_t> AllowedBehind(const DraftTree& tree, const TreeSource::Ask& ask, int node,
                                    int vocab_size) {
  std::vector<TokenId> path;
  for (int n = node; n >= 0; n = tree[n].parent)
    path.push_back((*ask.drafts)[static_cast<size_t>(n)]);
  const std::unique_ptr<GuidedSlot> guide = ask.guide->Clone();
  std::vector<uint32_t> allowed;
  const auto may_come = [&guide](TokenId token) { return guide->Accept(token); };
  if (!std::all_of(path.rbegin(), path.rend(), may_come)) return allowed;
  allowed.resize(static_cast<size_t>((vocab_size + kMaskWordBits - 1) / kMaskWordBits));
  if (guide->FindAllowed(allowed) != GuideVerdict::kTokens) allowed.clear();
  return allowed;
}

// `logits` without the tokens that may not come.
std::vector<float> Ban(const TreeLogits& logits, const std::vector<uint32_t>& allowed) {
  std::vector<float> row(logits.logits, logits.logits + logits.num_ids);
  for (int32_t i = 0; i < logits.num_ids; ++i) {
    const auto token = static_cast<size_t>(logits.TokenOf(i));
    if ((allowed[token / kMaskWordBits] >> (token % kMaskWordBits) & 1) == 0)
      row[static_cast<size_t>(i)] = decoding::kBanned;
  }
  return row;
}

}  // namespace

void ChooseChildren(const DraftTree& tree, const TreeSource::Ask& ask, int parent,
                    const TreeLogits& logits, int vocab_size) {
  int count = 0;
  for (int i = parent + 1; i < ask.num_nodes; ++i)
    if (tree[i].parent == parent) count = std::max(count, tree[i].choice + 1);
  if (count == 0) return;
  count = std::min(count, logits.num_ids);
  std::array<int32_t, DraftTree::kMaxChoices> ids{};
  if (ask.guide == nullptr) {
    decoding::BestTokens(logits.logits, logits.num_ids, count, ids.data());
  } else if (const auto allowed = AllowedBehind(tree, ask, parent, vocab_size); !allowed.empty()) {
    decoding::BestTokens(Ban(logits, allowed).data(), logits.num_ids, count, ids.data());
  }
  for (int i = parent + 1; i < ask.num_nodes; ++i)
    if (tree[i].parent == parent)
      (*ask.drafts)[static_cast<size_t>(i)] =
          logits.TokenOf(ids[static_cast<size_t>(std::min(tree[i].choice, count - 1))]);
}

}  // namespace inflight::executor

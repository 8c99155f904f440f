// SPDX-License-Identifier: Apache-2.0
// Which tokens the nodes of a tree of drafts get, out of the logits that a source has for them.
//
// Threads: any, for different parents at once.
#pragma once

#include <cstdint>
#include <span>

#include "executor/tree_source.h"

namespace inflight::executor {

// A row of logits of a source.
struct TreeLogits {
  const float* logits = nullptr;  // [num_ids]
  int num_ids = 0;
  std::span<const int32_t> token_ids = {};  // [num_ids] whose they are; empty: of their places

  TokenId TokenOf(int32_t id) const {
    return token_ids.empty() ? id : token_ids[static_cast<size_t>(id)];
  }
};

// Fills the children of `parent` (-1: of the root) among the nodes of `ask`: choice c is the c-th
// best token, of a sequence with a guide among those that may come behind the parent. Children of a
// parent that cannot come, or that nothing may follow, are of no token in particular. The nodes
// from the root to the parent are filled.
void ChooseChildren(const decoding::DraftTree& tree, const TreeSource::Ask& ask, int parent,
                    const TreeLogits& logits, int vocab_size);

}  // namespace inflight::executor

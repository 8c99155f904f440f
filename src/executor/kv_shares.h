// SPDX-License-Identifier: Apache-2.0
// How the memory of a KV cache is shared out between KV groups (docs/kv-cache.md, "Windows of some
// layers").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/decoder.h"

namespace inflight::executor {

// Of layers whose windows differ: one for each window, the widest first, and before all others the
// group of layers that see the whole text. Of more than kMaxKvGroups windows the narrowest layers
// are in the last group. Empty where all layers have one window, which is one group.
inline constexpr int kMaxKvGroups = 4;
std::vector<int> KvGroupsOf(const model::AttentionWindows& windows, int num_layers);

// A KV group: a pool of blocks of its own.
struct KvGroupPlan {
  int window = 0;                // of which a sequence keeps as many tokens; 0 = all
  uint64_t bytes_per_block = 0;  // of this rank's layers; 0 where it has none of the group
  int64_t num_blocks = 0;        // for sequences
  int full_length_blocks = 0;    // that a sequence of full length holds at most at once
};

// Blocks of a group behind the first where the first has `num_first` blocks, of which a sequence of
// full length holds `full_length_first`. They follow from these and from limits alone, so that all
// ranks of a model have the same. As many as its layers can use:
//
//   never more than the first group has, which a sequence needs as many of at least, nor more than
//   full_length_blocks for each of `max_batch_size` sequences
//   else in proportion to what a sequence of full length holds of both, but a quarter of the first
//   group's at least, so that many short sequences, which need as many of both, find room; and
//   enough for one sequence
int64_t BlocksBehind(const KvGroupPlan& group, int64_t num_first, int full_length_first,
                     int max_batch_size);

// Their num_blocks are not read.
struct KvShares {
  KvGroupPlan first;
  std::span<const KvGroupPlan> others;
  int max_batch_size = 0;

  // Of that many blocks of the first group, and of those of the others beside them.
  uint64_t BytesOf(int64_t num_first) const;
  // The most blocks of the first group for which `bytes` are enough; at most `most`.
  int64_t BlocksIn(uint64_t bytes, int64_t most) const;
};

}  // namespace inflight::executor

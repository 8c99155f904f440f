// SPDX-License-Identifier: Apache-2.0
// What a step of beam search does to block tables (docs/reference/scheduling.md). Host and device
// apply the same rule to their own tables, so that no plan has to carry tables:
//
//   blocks that are full   are shared: beam j's become those of its parent
//   the open block         is private: where parent[j] != j, its filled rows are copied from the
//                          parent's into beam j's spare block, and open and spare change places
//
// A spare is nobody's open block, so no copy overwrites what another reads: copies may run in any
// order, once the rows of the step are written.
//
// After the prompt, which beam 0 computed alone, all parents are 0 and the tables of the others
// hold nothing yet: what their open and spare change places with is -1, and they need another
// spare.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv_cache/block_pool.h"

namespace inflight::kv_cache {

struct BeamTableView {
  BlockId* blocks;  // [ceil(num_tokens / block_size)]
  BlockId* spare;
};

// The first `num_tokens` rows of a block over all layers.
struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
  int num_tokens = 0;
};

// Appends to `copies`. `num_tokens` is what each beam holds.
void ReorderBeams(std::span<const BeamTableView> beams, std::span<const int32_t> parents,
                  int num_tokens, int block_size, std::vector<BlockCopy>* copies);

}  // namespace inflight::kv_cache

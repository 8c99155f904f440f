// SPDX-License-Identifier: Apache-2.0
#include "kv_cache/beam_tables.h"

#include <algorithm>

namespace inflight::kv_cache {

void ReorderBeams(std::span<const BeamTableView> beams, std::span<const int32_t> parents,
                  int num_tokens, int block_size, std::vector<BlockCopy>* copies) {
  const auto num_full = static_cast<size_t>(num_tokens / block_size);
  const int num_open_tokens = num_tokens % block_size;
  const size_t num_blocks = num_full + (num_open_tokens > 0 ? 1 : 0);
  std::vector<BlockId> before;
  before.reserve(beams.size() * num_blocks);
  for (const BeamTableView& beam : beams) {
    before.insert(before.end(), beam.blocks, beam.blocks + num_blocks);
  }
  for (size_t j = 0; j < beams.size(); ++j) {
    const auto parent = static_cast<size_t>(parents[j]);
    if (parent == j) continue;
    const BlockId* of_parent = before.data() + parent * num_blocks;
    std::copy_n(of_parent, num_full, beams[j].blocks);
    if (num_open_tokens == 0) continue;
    copies->push_back({of_parent[num_full], *beams[j].spare, num_open_tokens});
    std::swap(beams[j].blocks[num_full], *beams[j].spare);
  }
}

}  // namespace inflight::kv_cache

// SPDX-License-Identifier: Apache-2.0
#include "kv_cache/kv_cache.h"

#include <algorithm>

#include "base/check.h"

namespace inflight::kv_cache {
namespace {

std::span<const TokenId> BlockTokens(std::span<const TokenId> tokens, int block_idx,
                                     int block_size) {
  return tokens.subspan(static_cast<size_t>(block_idx) * static_cast<size_t>(block_size),
                        static_cast<size_t>(block_size));
}

}  // namespace

KvCache::Group::Group(const GroupConfig& config, PrefixIndex::HashFunction hash)
    : block_size(config.block_size),
      index(config.num_blocks, config.block_size, hash),
      pool(config.num_blocks, [this](BlockId block) { index.Erase(block); }) {}

KvCache::KvCache(std::span<const GroupConfig> groups, bool enable_prefix_reuse,
                 PrefixIndex::HashFunction hash)
    : enable_prefix_reuse_(enable_prefix_reuse) {
  for (const GroupConfig& config : groups) groups_.push_back(std::make_unique<Group>(config, hash));
}

bool KvCache::Start(const StartParams& params, SequenceBlocks* sequence, int* num_cached_tokens) {
  const int num_cached = MatchTokens(params);
  for (const auto& group : groups_) {
    if (!Fits(*group, params, num_cached)) return false;
  }
  sequence->salt = params.salt;
  sequence->groups.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    Lend(*groups_[g], params, num_cached, &sequence->groups[g]);
  }
  *num_cached_tokens = num_cached;
  return true;
}

// The longest prefix, in tokens, of which every group holds full blocks.
int KvCache::MatchTokens(const StartParams& params) const {
  if (!enable_prefix_reuse_) return 0;
  int num_tokens = static_cast<int>(params.tokens.size()) - 1;
  for (const auto& group : groups_) {
    const int limit = std::min(num_tokens / group->block_size, params.max_reused_blocks);
    PrefixIndex::Node node = group->index.Root(params.salt);
    int num_blocks = 0;
    while (num_blocks < limit) {
      node = group->index.Find(node, BlockTokens(params.tokens, num_blocks, group->block_size));
      if (node.block < 0) break;
      ++num_blocks;
    }
    num_tokens = std::min(num_tokens, num_blocks * group->block_size);
  }
  // Groups of different block sizes agree on a common boundary.
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& group : groups_) {
      const int rounded = num_tokens / group->block_size * group->block_size;
      changed |= rounded != num_tokens;
      num_tokens = rounded;
    }
  }
  return num_tokens;
}

// Reused blocks that nobody holds leave the free count too, so they are charged; those in use by
// others are not.
bool KvCache::Fits(const Group& group, const StartParams& params, int num_cached_tokens) const {
  const int num_reused = num_cached_tokens / group.block_size;
  int64_t needed = BlocksOf(static_cast<int>(params.tokens.size()), params.reserved_tokens,
                            params.num_beams, group.block_size) -
                   num_reused;
  PrefixIndex::Node node = group.index.Root(params.salt);
  for (int i = 0; i < num_reused; ++i) {
    node = group.index.Find(node, BlockTokens(params.tokens, i, group.block_size));
    needed += group.pool.refs(node.block) == 0 ? 1 : 0;
  }
  return needed + params.num_spare_blocks <= group.pool.num_free() - group.num_reserved;
}

void KvCache::Lend(Group& group, const StartParams& params, int num_cached_tokens,
                   GroupTable* table) {
  const int num_reused = num_cached_tokens / group.block_size;
  table->blocks.clear();
  table->blocks.reserve(static_cast<size_t>(BlocksFor(params.max_kv_tokens, group.block_size)));
  table->tip = group.index.Root(params.salt);
  for (int i = 0; i < num_reused; ++i) {
    table->tip = group.index.Find(table->tip, BlockTokens(params.tokens, i, group.block_size));
    group.pool.Take(table->tip.block);
    table->blocks.push_back(table->tip.block);
  }
  table->num_sent = 0;
  table->num_published = num_reused;
  table->num_prompt_blocks = static_cast<int>(params.tokens.size()) / group.block_size;
  table->other_beams.resize(static_cast<size_t>(params.num_beams - 1));
  for (BlockTable& beam : table->other_beams) beam.blocks.reserve(table->blocks.capacity());
  table->num_reserved =
      static_cast<int>(BlocksOf(static_cast<int>(params.tokens.size()), params.reserved_tokens,
                                params.num_beams, group.block_size)) -
      num_reused;
  group.num_reserved += table->num_reserved;
  reused_ += num_reused;
  if (enable_prefix_reuse_) {
    missed_ += (static_cast<int>(params.tokens.size()) - 1) / group.block_size - num_reused;
  }
}

bool KvCache::Reserve(SequenceBlocks* sequence, int num_tokens) {
  const auto num_missing = [&](size_t g) {
    return NumMissing(*sequence, static_cast<int>(g), num_tokens);
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t num_available = groups_[g]->pool.num_free() - groups_[g]->num_reserved;
    if (num_missing(g) > std::max<int64_t>(num_available, 0)) return false;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int num_more = num_missing(g);
    sequence->groups[g].num_reserved += num_more;
    groups_[g]->num_reserved += num_more;
  }
  return true;
}

void KvCache::Extend(SequenceBlocks* sequence, int num_tokens) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    Grow(*groups_[g], &table, num_tokens, &table);
    for (BlockTable& beam : table.other_beams) {
      if (!beam.blocks.empty()) Grow(*groups_[g], &table, num_tokens, &beam);
    }
  }
}

void KvCache::Grow(Group& group, GroupTable* table, int num_tokens, BlockTable* beam) {
  const auto num_blocks = static_cast<size_t>(BlocksFor(num_tokens, group.block_size));
  const size_t first = beam->blocks.size();
  if (num_blocks <= first) return;
  beam->blocks.resize(num_blocks);
  TakeReserved(group, table, std::span(beam->blocks).subspan(first));
}

void KvCache::TakeReserved(Group& group, GroupTable* table, std::span<BlockId> blocks) {
  const auto num_new = static_cast<int>(blocks.size());
  CHECK_LE(num_new, table->num_reserved);
  CHECK(group.pool.Allocate(blocks).ok());
  table->num_reserved -= num_new;
  group.num_reserved -= num_new;
  alloc_new_ += num_new;
}

void KvCache::AddSpares(SequenceBlocks* sequence) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    for (int j = 0; j < table.num_beams(); ++j) {
      BlockId& spare = table.beam(j).spare;
      if (spare < 0) TakeReserved(*groups_[g], &table, std::span(&spare, 1));
    }
  }
}

void KvCache::Reorder(SequenceBlocks* sequence, std::span<const int32_t> parents, int num_tokens) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    GroupTable& table = sequence->groups[g];
    const int num_full = num_tokens / group.block_size;
    const int num_blocks = BlocksFor(num_tokens, group.block_size);
    views_.clear();
    for (int j = 0; j < table.num_beams(); ++j) {
      BlockTable& beam = table.beam(j);
      beam.blocks.resize(static_cast<size_t>(num_blocks), -1);
      views_.push_back({beam.blocks.data(), &beam.spare});
    }
    // First all new references, then the old ones go.
    const auto for_each_change = [&](const auto& change) {
      for (size_t j = 0; j < views_.size(); ++j) {
        const BlockId* after = views_[static_cast<size_t>(parents[j])].blocks;
        for (int i = 0; i < num_full; ++i) {
          if (views_[j].blocks[i] != after[i]) change(views_[j].blocks[i], after[i]);
        }
      }
    };
    for_each_change([&group](BlockId, BlockId after) { group.pool.Take(after); });
    for_each_change([&group](BlockId before, BlockId) {
      if (before >= 0) group.pool.Release(before, group.index.Contains(before));
    });
    copies_.clear();
    ReorderBeams(views_, parents, num_tokens, group.block_size, &copies_);
  }
  ++version_;
}

int KvCache::NumMissing(const SequenceBlocks& sequence, int g, int num_tokens) const {
  const GroupTable& table = sequence.groups[static_cast<size_t>(g)];
  const int num_blocks = BlocksFor(num_tokens, groups_[static_cast<size_t>(g)]->block_size);
  int num_more = std::max(num_blocks - static_cast<int>(table.blocks.size()), 0);
  const bool has_beams = !table.other_beams.empty();
  if (has_beams && table.spare < 0) ++num_more;
  for (const BlockTable& beam : table.other_beams) {
    const int num_held =
        beam.blocks.empty() ? table.num_prompt_blocks : static_cast<int>(beam.blocks.size());
    num_more += std::max(num_blocks - num_held, 0) + (beam.spare < 0 ? 1 : 0);
  }
  return std::max(num_more - table.num_reserved, 0);
}

int64_t KvCache::BlocksOf(int num_prompt_tokens, int num_tokens, int num_beams, int block_size) {
  const int64_t num_blocks = BlocksFor(num_tokens, block_size);
  if (num_beams == 1) return num_blocks;
  const int64_t num_shared = num_prompt_tokens / block_size;
  return num_shared + num_beams * (num_blocks - num_shared) + num_beams;
}

void KvCache::Publish(SequenceBlocks* sequence, std::span<const TokenId> tokens, int num_valid) {
  if (!enable_prefix_reuse_) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    GroupTable& table = sequence->groups[g];
    const int num_full =
        std::min(num_valid / group.block_size, static_cast<int>(table.blocks.size()));
    if (table.num_published >= num_full) continue;
    if (!group.index.IsLive(table.tip)) {  // a twin's block went away: begin again with our own
      table.tip = group.index.Root(sequence->salt);
      table.num_published = 0;
    }
    for (; table.num_published < num_full; ++table.num_published) {
      const auto block_tokens = BlockTokens(tokens, table.num_published, group.block_size);
      const PrefixIndex::Node found = group.index.Find(table.tip, block_tokens);
      if (found.block >= 0) {
        table.tip = found;
        continue;
      }
      const BlockId own = table.blocks[static_cast<size_t>(table.num_published)];
      group.index.Erase(own);  // it may hang below a node that is gone
      table.tip = group.index.Insert(table.tip, block_tokens, own);
    }
    ++version_;
  }
}

void KvCache::EndGrowth(SequenceBlocks* sequence) {
  for (size_t g = 0; g < sequence->groups.size(); ++g) {
    groups_[g]->num_reserved -= sequence->groups[g].num_reserved;
    sequence->groups[g].num_reserved = 0;
  }
  ++version_;
}

void KvCache::Free(SequenceBlocks* sequence) {
  EndGrowth(sequence);
  for (size_t g = 0; g < sequence->groups.size(); ++g) {
    Group& group = *groups_[g];
    GroupTable& table = sequence->groups[g];
    for (BlockTable& beam : table.other_beams) ReleaseAll(group, &beam);
    ReleaseAll(group, &table);
  }
  sequence->groups.clear();
}

void KvCache::ReleaseAll(Group& group, BlockTable* beam) {
  const auto release = [&group](BlockId block) {
    group.pool.Release(block, /*keep_contents=*/group.index.Contains(block));
  };
  for (size_t i = beam->blocks.size(); i-- > 0;) release(beam->blocks[i]);
  if (beam->spare >= 0) release(beam->spare);
}

KvCacheStats KvCache::stats() const {
  KvCacheStats stats;
  for (const auto& group : groups_) {
    stats.blocks_max += group->pool.num_blocks();
    stats.blocks_free += group->pool.num_free();
    stats.blocks_used += group->pool.num_used();
  }
  stats.alloc_new = alloc_new_;
  stats.reused = reused_;
  stats.missed = missed_;
  stats.alloc_total = alloc_new_ + reused_;
  return stats;
}

}  // namespace inflight::kv_cache

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
  int64_t needed = BlocksFor(params.reserved_tokens, group.block_size) - num_reused;
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
  table->num_reserved = BlocksFor(params.reserved_tokens, group.block_size) - num_reused;
  group.num_reserved += table->num_reserved;
  reused_ += num_reused;
  if (enable_prefix_reuse_) {
    missed_ += (static_cast<int>(params.tokens.size()) - 1) / group.block_size - num_reused;
  }
}

bool KvCache::Reserve(SequenceBlocks* sequence, int num_tokens) {
  const auto num_missing = [&](size_t g) {
    const GroupTable& table = sequence->groups[g];
    return BlocksFor(num_tokens, groups_[g]->block_size) - static_cast<int>(table.blocks.size()) -
           table.num_reserved;
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t num_available = groups_[g]->pool.num_free() - groups_[g]->num_reserved;
    if (num_missing(g) > std::max<int64_t>(num_available, 0)) return false;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int num_more = std::max(num_missing(g), 0);
    sequence->groups[g].num_reserved += num_more;
    groups_[g]->num_reserved += num_more;
  }
  return true;
}

void KvCache::Extend(SequenceBlocks* sequence, int num_tokens) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    GroupTable& table = sequence->groups[g];
    const int num_new =
        BlocksFor(num_tokens, group.block_size) - static_cast<int>(table.blocks.size());
    if (num_new <= 0) continue;
    CHECK_LE(num_new, table.num_reserved);
    const size_t first = table.blocks.size();
    table.blocks.resize(first + static_cast<size_t>(num_new));
    CHECK(group.pool.Allocate(std::span(table.blocks).subspan(first)).ok());
    table.num_reserved -= num_new;
    group.num_reserved -= num_new;
    alloc_new_ += num_new;
  }
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
    std::vector<BlockId>& blocks = sequence->groups[g].blocks;
    for (size_t i = blocks.size(); i-- > 0;) {
      group.pool.Release(blocks[i], /*keep_contents=*/group.index.Contains(blocks[i]));
    }
  }
  sequence->groups.clear();
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

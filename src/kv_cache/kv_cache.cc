// SPDX-License-Identifier: Apache-2.0
#include "kv_cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace inflight::kv_cache {
namespace {

std::span<const TokenId> BlockTokens(std::span<const TokenId> tokens, int block_idx,
                                     int block_size) {
  return tokens.subspan(static_cast<size_t>(block_idx) * static_cast<size_t>(block_size),
                        static_cast<size_t>(block_size));
}

}  // namespace

KvCache::Group::Group(int group_idx, const GroupConfig& group_config,
                      PrefixIndex::HashFunction hash, std::function<void(Group&, BlockId)> on_evict)
    : idx(group_idx),
      config(group_config),
      is_passed(static_cast<size_t>(config.num_blocks)),
      index(config.num_blocks + config.num_host_blocks, config.block_size, hash),
      pool(config.num_blocks,
           [this, evict = std::move(on_evict)](BlockId block) { evict(*this, block); }),
      host(config.num_host_blocks, [this](BlockId block) {
        index.Erase(block + static_cast<BlockId>(config.num_blocks));
      }) {}

int KvCache::Group::FirstSeen(int position) const {
  if (config.window == 0) return 0;
  const int num_recent = config.window - config.num_sinks;
  return std::max(config.num_sinks, position + 1 - num_recent) / config.block_size;
}

void KvCache::Group::Pass(GroupTable* table, int block_idx) {
  BlockId& place = table->blocks[static_cast<size_t>(block_idx)];
  const BlockId block = std::exchange(place, -1);
  const bool is_known = index.Contains(block);
  if (!is_known || !follows_first || block_idx < table->num_prompt_blocks)
    return pool.Release(block, /*keep_contents=*/is_known);
  pool.ReleaseFirst(block);
  is_passed[static_cast<size_t>(block)] = pool.refs(block) == 0;
}

int KvCache::Group::NumHeld(const GroupTable& table) const {
  const auto size = static_cast<int>(table.blocks.size());
  const int num_sinks = std::min(num_sink_blocks(), size);
  return num_sinks + std::max(size - std::max(table.first_kept, num_sinks), 0);
}

KvCache::KvCache(std::span<const GroupConfig> groups, bool enable_prefix_reuse,
                 PrefixIndex::HashFunction hash)
    : enable_prefix_reuse_(enable_prefix_reuse) {
  for (const GroupConfig& config : groups) {
    groups_.push_back(
        std::make_unique<Group>(static_cast<int>(groups_.size()), config, hash,
                                [this](Group& group, BlockId block) { Evict(group, block); }));
    groups_.back()->follows_first =
        groups_.size() > 1 && config.window > 0 && config.block_size == groups.front().block_size;
    window_ = std::max(window_, config.window);
    keeps_all_ |= config.window == 0;
  }
  host_copies_.reserve(kMaxCopies);
}

void KvCache::Observe(KvObserver* observer) {
  groups_.front()->index.Observe(observer, groups_.front()->config.num_blocks);
}

bool KvCache::Start(const StartParams& params, SequenceBlocks* sequence, int* num_cached_tokens) {
  const Prefix prefix = Match(params);
  for (const auto& group : groups_) {
    if (!Fits(*group, params, prefix)) return false;
  }
  num_promised_copies_ = 0;
  for (const auto& group : groups_) num_promised_copies_ += NumOnboards(*group, params, prefix);
  sequence->salt = params.salt;
  sequence->groups.resize(groups_.size());
  const int64_t reused = reused_;
  const int64_t missed = missed_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Lend(*groups_[g], params, prefix, &sequence->groups[g]);
  }
  sequence->num_reused += reused_ - reused;
  sequence->num_missed += missed_ - missed;
  *num_cached_tokens = prefix.num_tokens;
  return true;
}

int KvCache::MatchTokens(const StartParams& params) const { return Match(params).num_tokens; }

// The longest prefix of which every group holds full blocks: all of them, or of a group that
// follows the first those that the tokens behind it see.
KvCache::Prefix KvCache::Match(const StartParams& params) const {
  Prefix prefix;
  prefix.nodes.resize(groups_.size());
  if (!enable_prefix_reuse_) return prefix;
  prefix.num_tokens = static_cast<int>(params.tokens.size()) - 1;
  // What lies in the host pool has to be copied.
  const int max_copies = (kMaxCopies - static_cast<int>(host_copies_.size())) / num_groups();
  for (const auto& group : groups_)
    if (!group->follows_first) MatchChain(*group, params, max_copies, &prefix);
  RoundDown(&prefix);
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& group : groups_) {
      if (!group->follows_first) continue;
      const int num_tokens = NumSeen(*group, params, max_copies, prefix);
      changed |= num_tokens < prefix.num_tokens;
      prefix.num_tokens = num_tokens;
    }
    RoundDown(&prefix);
  }
  for (const auto& group : groups_) {
    std::vector<PrefixIndex::Node>& nodes = prefix.nodes[static_cast<size_t>(group->idx)];
    const int num_blocks = prefix.num_tokens / group->config.block_size;
    nodes.resize(static_cast<size_t>(num_blocks));
    for (int i = 0; i < num_blocks && group->follows_first; ++i)
      if (IsLent(*group, params, prefix.num_tokens, i))
        nodes[static_cast<size_t>(i)] = FindBehind(*group, params, prefix, i);
  }
  return prefix;
}

// Of a group that follows no other: the nodes from the root on, in the bounds of the others.
void KvCache::MatchChain(const Group& group, const StartParams& params, int max_copies,
                         Prefix* prefix) const {
  const int block_size = group.config.block_size;
  const int limit = std::min(prefix->num_tokens / block_size, params.max_reused_blocks);
  std::vector<PrefixIndex::Node>& nodes = prefix->nodes[static_cast<size_t>(group.idx)];
  PrefixIndex::Node node = group.index.Root(params.salt);
  int num_blocks = 0;
  for (int num_copies = 0; num_blocks < limit; ++num_blocks) {
    node = group.index.Find(node, BlockTokens(params.tokens, num_blocks, block_size));
    if (node.block < 0) break;
    if (group.IsHost(node.block) && ++num_copies > max_copies) break;
    nodes.push_back(node);
  }
  prefix->num_tokens = std::min(prefix->num_tokens, num_blocks * block_size);
}

// Groups of different block sizes agree on a common boundary.
void KvCache::RoundDown(Prefix* prefix) const {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& group : groups_) {
      const int rounded = prefix->num_tokens / group->config.block_size * group->config.block_size;
      changed |= rounded != prefix->num_tokens;
      prefix->num_tokens = rounded;
    }
  }
}

// Of a group that follows the first: the most of the prefix's tokens behind which all blocks are
// there that are seen. From the end on; where one is missing, or one too many would have to be
// copied, the prefix ends before it.
int KvCache::NumSeen(const Group& group, const StartParams& params, int max_copies,
                     const Prefix& prefix) const {
  const int block_size = group.config.block_size;
  int num_blocks = prefix.num_tokens / block_size;
  int num_copies = 0;
  for (int i = num_blocks - 1; i >= 0; --i) {
    if (!IsLent(group, params, num_blocks * block_size, i)) {
      i = group.num_sink_blocks();  // those between are not
      continue;
    }
    const PrefixIndex::Node node = FindBehind(group, params, prefix, i);
    if (node.block >= 0 && (!group.IsHost(node.block) || ++num_copies <= max_copies)) continue;
    num_blocks = i;
    num_copies = 0;
  }
  return num_blocks * block_size;
}

// Block `idx` of the text in a group that follows the first; block -1 where it has it not.
PrefixIndex::Node KvCache::FindBehind(const Group& group, const StartParams& params,
                                      const Prefix& prefix, int idx) const {
  const PrefixIndex::Node parent = idx == 0 ? groups_.front()->index.Root(params.salt)
                                            : prefix.nodes.front()[static_cast<size_t>(idx - 1)];
  return group.index.Find(parent, BlockTokens(params.tokens, idx, group.config.block_size));
}

// Whether block `idx` of a reused prefix is seen by the tokens behind it.
bool KvCache::IsLent(const Group& group, const StartParams& params, int num_cached_tokens,
                     int idx) {
  return params.num_beams > 1 || idx < group.num_sink_blocks() ||
         idx >= group.FirstSeen(num_cached_tokens);
}

template <typename Function>
void KvCache::ForEachLent(const Group& group, const StartParams& params, const Prefix& prefix,
                          Function function) {
  const std::vector<PrefixIndex::Node>& nodes = prefix.nodes[static_cast<size_t>(group.idx)];
  for (size_t i = 0; i < nodes.size(); ++i)
    if (IsLent(group, params, prefix.num_tokens, static_cast<int>(i))) function(nodes[i].block);
}

int KvCache::NumLent(const Group& group, const StartParams& params, int num_cached_tokens) {
  int num_lent = 0;
  for (int i = 0; i < num_cached_tokens / group.config.block_size; ++i) {
    num_lent += IsLent(group, params, num_cached_tokens, i) ? 1 : 0;
  }
  return num_lent;
}

// Blocks that are set aside beside those that a reused prefix lends.
int KvCache::NumReserved(const Group& group, const StartParams& params, int num_cached_tokens) {
  const int block_size = group.config.block_size;
  const int num_reused = num_cached_tokens / block_size;
  const auto num_wanted =
      static_cast<int>(BlocksOf(static_cast<int>(params.tokens.size()), params.reserved_tokens,
                                params.num_beams, block_size)) -
      num_reused;
  if (group.config.window == 0 || params.num_beams > 1) return num_wanted;
  const int64_t num_seen = WindowBlocks(group.config, params.max_ahead_tokens);
  return static_cast<int>(
      std::min<int64_t>(num_wanted, num_seen - NumLent(group, params, num_cached_tokens)));
}

// Reused blocks that nobody holds leave the free count too, so they are charged; those in use by
// others are not, but where there is a window. Those of the host pool need a block to be copied to.
bool KvCache::Fits(const Group& group, const StartParams& params, const Prefix& prefix) const {
  int64_t needed = NumReserved(group, params, prefix.num_tokens);
  ForEachLent(group, params, prefix, [&](BlockId block) {
    const bool is_charged =
        group.config.window > 0 || group.IsHost(block) || group.pool.refs(block) == 0;
    needed += is_charged ? 1 : 0;
  });
  return needed + params.num_spare_blocks <= group.num_available();
}

int KvCache::NumOnboards(const Group& group, const StartParams& params, const Prefix& prefix) {
  int num_blocks = 0;
  ForEachLent(group, params, prefix,
              [&](BlockId block) { num_blocks += group.IsHost(block) ? 1 : 0; });
  return num_blocks;
}

void KvCache::Lend(Group& group, const StartParams& params, const Prefix& prefix,
                   GroupTable* table) {
  const int block_size = group.config.block_size;
  const int num_cached_tokens = prefix.num_tokens;
  const int num_reused = num_cached_tokens / block_size;
  table->max_blocks = BlocksFor(params.max_kv_tokens, block_size);
  table->blocks.clear();
  table->blocks.reserve(static_cast<size_t>(table->max_blocks));
  table->tip = group.index.Root(params.salt);
  // First all are held, so that making room for one does not drop another.
  for (int i = 0; i < num_reused; ++i) {
    table->tip = prefix.nodes[static_cast<size_t>(group.idx)][static_cast<size_t>(i)];
    const BlockId block = table->tip.block;
    const bool is_lent = IsLent(group, params, num_cached_tokens, i);
    table->blocks.push_back(is_lent ? block : -1);
    if (!is_lent) continue;
    if (group.IsHost(block)) {
      group.host.Take(group.HostIdx(block));
    } else {
      group.pool.Take(block);
      group.is_passed[static_cast<size_t>(block)] = false;
    }
  }
  for (BlockId& block : table->blocks) {
    if (block < 0 || !group.IsHost(block)) continue;
    const bool is_tip = block == table->tip.block;
    Onboard(group, &block);
    if (is_tip) table->tip.block = block;
  }
  table->num_sent = 0;
  table->first_kept =
      params.num_beams > 1 ? 0 : std::min(group.FirstSeen(num_cached_tokens), num_reused);
  table->num_published = num_reused;
  table->num_prompt_blocks = static_cast<int>(params.tokens.size()) / block_size;
  table->other_beams.resize(static_cast<size_t>(params.num_beams - 1));
  for (BlockTable& beam : table->other_beams) beam.blocks.reserve(table->blocks.capacity());
  table->num_reserved = NumReserved(group, params, num_cached_tokens);
  group.num_reserved += table->num_reserved;
  group.Claim(table, table->num_reserved + NumLent(group, params, num_cached_tokens));
  reused_ += num_reused;
  if (enable_prefix_reuse_) {
    missed_ += (static_cast<int>(params.tokens.size()) - 1) / block_size - num_reused;
  }
}

// The pool hands `block` out again: what it holds goes to the host pool, where it finds room.
void KvCache::Evict(Group& group, BlockId block) {
  BlockId host = -1;
  const bool is_passed = group.is_passed[static_cast<size_t>(block)];
  group.is_passed[static_cast<size_t>(block)] = false;
  const bool has_copy =
      !is_passed && static_cast<int>(host_copies_.size()) + num_promised_copies_ < kMaxCopies;
  if (!has_copy || !group.index.Contains(block) || !group.host.Allocate(std::span(&host, 1)).ok()) {
    group.index.Erase(block);
    return;
  }
  const BlockId to = host + static_cast<BlockId>(group.config.num_blocks);
  group.index.Move(block, to);
  host_copies_.push_back({.group = group.idx, .from = block, .to = to});
  group.host.Release(host, /*keep_contents=*/true);
  ++offloaded_;
}

// A held block of the host pool becomes one of the group's.
void KvCache::Onboard(Group& group, BlockId* block) {
  const BlockId from = *block;
  CHECK(group.pool.Allocate(std::span(block, 1)).ok());
  --num_promised_copies_;
  group.index.Move(from, *block);
  host_copies_.push_back({.group = group.idx, .from = from, .to = *block});
  group.host.Release(group.HostIdx(from), /*keep_contents=*/false);
  ++onboarded_;
}

bool KvCache::Reserve(SequenceBlocks* sequence, int num_tokens) {
  const auto num_missing = [&](size_t g) {
    return NumMissing(*sequence, static_cast<int>(g), num_tokens);
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (num_missing(g) > std::max<int64_t>(groups_[g]->num_available(), 0)) return false;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int num_more = num_missing(g);
    sequence->groups[g].num_reserved += num_more;
    groups_[g]->num_reserved += num_more;
    groups_[g]->Claim(&sequence->groups[g], num_more);
  }
  return true;
}

void KvCache::Extend(SequenceBlocks* sequence, int num_tokens) {
  const int64_t alloc_new = alloc_new_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    Grow(*groups_[g], &table, num_tokens, &table);
    for (BlockTable& beam : table.other_beams) {
      if (!beam.blocks.empty()) Grow(*groups_[g], &table, num_tokens, &beam);
    }
  }
  sequence->num_new += alloc_new_ - alloc_new;
}

void KvCache::Grow(Group& group, GroupTable* table, int num_tokens, BlockTable* beam) {
  const auto num_blocks = static_cast<size_t>(BlocksFor(num_tokens, group.config.block_size));
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
  const int64_t alloc_new = alloc_new_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    for (int j = 0; j < table.num_beams(); ++j) {
      BlockId& spare = table.beam(j).spare;
      if (spare < 0) TakeReserved(*groups_[g], &table, std::span(&spare, 1));
    }
  }
  sequence->num_new += alloc_new_ - alloc_new;
}

void KvCache::Reorder(SequenceBlocks* sequence, std::span<const int32_t> parents, int num_tokens) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    GroupTable& table = sequence->groups[g];
    const int num_full = num_tokens / group.config.block_size;
    const int num_blocks = BlocksFor(num_tokens, group.config.block_size);
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
    ReorderBeams(views_, parents, num_tokens, group.config.block_size, &copies_);
  }
  ++version_;
}

int KvCache::NumMissing(const SequenceBlocks& sequence, int g, int num_tokens) const {
  const GroupTable& table = sequence.groups[static_cast<size_t>(g)];
  const int num_blocks = BlocksFor(num_tokens, groups_[static_cast<size_t>(g)]->config.block_size);
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
  for (const auto& group : groups_)
    if (!group->follows_first) PublishIn(*group, sequence, tokens, num_valid);
}

void KvCache::PublishIn(Group& group, SequenceBlocks* sequence, std::span<const TokenId> tokens,
                        int num_valid) {
  GroupTable& table = sequence->groups[static_cast<size_t>(group.idx)];
  const int num_full =
      std::min(num_valid / group.config.block_size, static_cast<int>(table.blocks.size()));
  if (table.num_published >= num_full) return;
  if (!group.index.IsLive(table.tip)) {  // a twin's block went away: begin again with our own
    table.tip = group.index.Root(sequence->salt);
    table.num_published = 0;
  }
  for (; table.num_published < num_full; ++table.num_published) {
    const auto block_tokens = BlockTokens(tokens, table.num_published, group.config.block_size);
    const PrefixIndex::Node parent = table.tip;
    table.tip = group.index.Find(parent, block_tokens);
    if (table.tip.block < 0) {
      const BlockId own = table.blocks[static_cast<size_t>(table.num_published)];
      if (own < 0) {  // given back, and a twin's went away
        table.tip = parent;
        break;
      }
      group.index.Erase(own);  // it may hang below a node that is gone
      table.tip = group.index.Insert(parent, block_tokens, own);
    }
    if (group.idx == 0) PublishBehind(parent, block_tokens, table.num_published, sequence);
  }
  ++version_;
}

// The same block in the groups that follow the first, whose node of the block before is `parent`.
void KvCache::PublishBehind(const PrefixIndex::Node& parent, std::span<const TokenId> block_tokens,
                            int block_idx, SequenceBlocks* sequence) {
  for (size_t g = 1; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    if (!group.follows_first) continue;
    const BlockId own = sequence->groups[g].blocks[static_cast<size_t>(block_idx)];
    if (own < 0 || group.index.Find(parent, block_tokens).block >= 0) continue;
    group.index.Erase(own);
    group.index.Insert(parent, block_tokens, own);
  }
}

void KvCache::Advance(SequenceBlocks* sequence, int num_kv_tokens, int max_ahead_tokens) {
  for (size_t g = 0; g < sequence->groups.size(); ++g) {
    Group& group = *groups_[g];
    GroupTable& table = sequence->groups[g];
    if (group.config.window == 0 || !table.other_beams.empty()) continue;
    const int first_seen =
        std::min(group.FirstSeen(num_kv_tokens), static_cast<int>(table.blocks.size()));
    int num_dropped = 0;
    for (int i = std::max(table.first_kept, group.num_sink_blocks()); i < first_seen; ++i) {
      group.Pass(&table, i);
      ++num_dropped;
    }
    if (num_dropped > 0) table.first_kept = first_seen;
    // Their places are for those to come, as many as may be held at once.
    const int num_to_come = table.max_blocks - static_cast<int>(table.blocks.size());
    const auto num_room = static_cast<int>(std::min<int64_t>(
        WindowBlocks(group.config, max_ahead_tokens) - group.NumHeld(table), num_to_come));
    const int num_more =
        std::max(std::min(table.num_reserved + num_dropped, num_room), 0) - table.num_reserved;
    if (num_dropped == 0 && num_more == 0) continue;
    table.num_reserved += num_more;
    group.num_reserved += num_more;
    group.Claim(&table, num_more - num_dropped);
    ++version_;
  }
}

int64_t KvCache::WindowBlocks(const GroupConfig& config, int max_ahead_tokens) {
  // From the first token that the next one sees to the last one planned, wherever blocks begin.
  const int num_tokens = config.window - config.num_sinks - 1 + std::max(max_ahead_tokens, 1);
  return BlocksFor(config.num_sinks, config.block_size) +
         BlocksFor(num_tokens - 1, config.block_size) + 1;
}

void KvCache::EndGrowth(SequenceBlocks* sequence) {
  for (size_t g = 0; g < sequence->groups.size(); ++g) {
    GroupTable& table = sequence->groups[g];
    groups_[g]->num_reserved -= table.num_reserved;
    groups_[g]->Claim(&table, -table.num_reserved);
    table.num_reserved = 0;
    table.max_blocks = 0;
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
    group.Claim(&table, -table.num_claimed);
  }
  sequence->groups.clear();
}

void KvCache::Forget() {
  host_copies_.clear();
  for (const auto& group : groups_) {
    CHECK_EQ(group->pool.num_used(), 0);
    group->index.Clear();
    group->pool.FreeReusable();
    group->host.FreeReusable();
  }
  ++version_;
}

void KvCache::ReleaseAll(Group& group, BlockTable* beam) {
  const auto release = [&group](BlockId block) {
    group.pool.Release(block, /*keep_contents=*/group.index.Contains(block));
  };
  for (size_t i = beam->blocks.size(); i-- > 0;) {
    if (beam->blocks[i] >= 0) release(beam->blocks[i]);
  }
  if (beam->spare >= 0) release(beam->spare);
}

KvCacheStats KvCache::stats() const {
  KvCacheStats stats;
  for (const auto& group : groups_) {
    stats.blocks_max += group->pool.num_blocks();
    stats.blocks_free += group->pool.num_free();
    stats.blocks_used += group->pool.num_used();
    stats.host_blocks_max += group->host.num_blocks();
    stats.host_blocks_used += group->host.num_reusable();
  }
  stats.offloaded = offloaded_;
  stats.onboarded = onboarded_;
  stats.alloc_new = alloc_new_;
  stats.reused = reused_;
  stats.missed = missed_;
  stats.alloc_total = alloc_new_ + reused_;
  return stats;
}

}  // namespace inflight::kv_cache

// SPDX-License-Identifier: Apache-2.0
// Block tables of all sequences: which blocks of each KV group hold a sequence's K and V, what is
// reserved for its future, and which of its blocks other sequences may reuse.
//
// A sequence can always Extend up to the length that Start or Reserve set aside for it: all it may
// ever need (GUARANTEED_NO_EVICT), or its next steps (MAX_UTILIZATION).
//
//   reservation of a group:  num_free >= sum over sequences of (set aside - held)
//   of one with a window:    num_blocks >= sum over sequences of what they hold and may still take
//
// The second is larger, since it counts a block for each that holds it: one that gives back a block
// which others still hold gains nothing by that, and needs another all the same.
//
// Layers of one window and dtype form a KV group with a pool, a prefix index and tables of its own;
// a prefix is reused only as far as every group still has what the tokens behind it see.
//
// A group with a window follows the first one, where its blocks have as many tokens: its index
// knows a block by the first group's node of the block before. So what it has given away of a
// text's beginning does not keep others from reusing what comes behind. In a group that does not
// follow, all blocks of a prefix have to be there. What a sequence generated and its window passed
// is the first that a following group hands out again, and the host pool gets no copy of it: few
// come back to the middle of an answer, and what prompts begin with would have to go for it.
//
// Sliding windows: where no later token of a sequence sees a block, Advance gives it back, and its
// place in the table is -1. Such a sequence never holds more than WindowBlocks, however long it
// gets, so no more is set aside for it; and less, once its prompt is computed. The beams of a
// search keep all of theirs.
//
// A host pool keeps what the index would forget: a reusable block that is handed out again is
// copied there first, and back where a prefix needs it. Its blocks have the ids behind the group's
// own, [num_blocks, num_blocks + num_host_blocks). Copies are made by the device, in order, before
// the step that is planned next (TakeCopies).
//
// The beams of a beam search are one sequence here: beam 0 computes the prompt; from the first
// Reorder on each beam has a table, which shares full blocks with others by reference
// (beam_tables.h). What is set aside is for all of them.
//
// Threads: executor thread only. Allocates in Start, never in Reserve, Extend, Publish or Free.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "inflight/kv_events.h"
#include "inflight/request.h"
#include "kv_cache/beam_tables.h"
#include "kv_cache/block_pool.h"
#include "kv_cache/prefix_index.h"

namespace inflight::kv_cache {

struct GroupConfig {
  int64_t num_blocks = 0;
  int block_size = 0;  // tokens
  // A token sees the first num_sinks tokens and the last window - num_sinks ones, itself the last;
  // 0 = all.
  int window = 0;
  int num_sinks = 0;
  int64_t num_host_blocks = 0;
};

// Blocks that hold as many tokens.
template <typename Count>
constexpr Count BlocksFor(Count num_tokens, int block_size) {
  return (num_tokens + block_size - 1) / block_size;
}

// The blocks of a sequence, or of one beam, in one group.
struct BlockTable {
  // Block i holds tokens [i * block_size, (i + 1) * block_size); -1: no token to come sees them.
  std::vector<BlockId> blocks;
  int num_sent = 0;  // leading entries that the device knows of; set by the scheduler
  // Of a beam.
  BlockId spare = -1;
  bool is_spare_sent = false;  // set by the scheduler
};

// One sequence in one group: the table of beam 0, or of the only one there is.
struct GroupTable : BlockTable {
  int num_reserved = 0;   // blocks that Extend and AddSpares may still take
  int num_claimed = 0;    // with a window: what is counted for this sequence
  int max_blocks = 0;     // that the table may ever have; 0 when it grows no more
  int first_kept = 0;     // blocks before it are -1, but for the sinks'
  int num_published = 0;  // leading blocks whose contents are in the index, here or in a twin
  PrefixIndex::Node tip;  // index node of block num_published - 1
  std::vector<BlockTable> other_beams;  // [num_beams - 1]; without blocks before the first Reorder
  int num_prompt_blocks = 0;            // full blocks of the prompt: every beam will share them

  int num_beams() const { return static_cast<int>(other_beams.size()) + 1; }
  BlockTable& beam(int j) { return j == 0 ? *this : other_beams[static_cast<size_t>(j - 1)]; }
};

// A whole block of a group, to the host pool or back.
struct HostCopy {
  int32_t group = 0;
  BlockId from = 0, to = 0;
};

struct SequenceBlocks {
  std::vector<GroupTable> groups;  // [num_groups]; empty before Start and after Free
  uint64_t salt = 0;
  // As in KvCacheStats, of this sequence alone; Free leaves them.
  int64_t num_new = 0, num_reused = 0, num_missed = 0;
};

// Counters grow from load. A block lent from the index counts as reused; alloc_total = alloc_new +
// reused. `missed` counts full prompt blocks that the index did not have.
struct KvCacheStats {
  int64_t blocks_max = 0, blocks_free = 0, blocks_used = 0;  // free includes reusable ones
  int64_t alloc_total = 0, alloc_new = 0, reused = 0, missed = 0;
  int64_t host_blocks_max = 0, host_blocks_used = 0;  // of the host pool: all, and those that hold
  int64_t offloaded = 0, onboarded = 0;               // blocks copied there, and back
};

class KvCache {
 public:
  static constexpr int kMaxCopies = 256;  // of one step

  KvCache(std::span<const GroupConfig> groups, bool enable_prefix_reuse,
          PrefixIndex::HashFunction hash = &PrefixIndex::XxHash);

  // From here on `observer`, which outlives this, is told which blocks may be reused: those of the
  // first group.
  void Observe(KvObserver* observer);

  struct StartParams {
    std::span<const TokenId> tokens;  // known so far: what prefill would compute
    uint64_t salt = 0;
    int num_beams = 1;
    int max_kv_tokens = 0;      // at most this many tokens will ever be held, by each beam
    int reserved_tokens = 0;    // of them, those whose blocks are set aside now
    int max_ahead_tokens = 0;   // that are planned at most beyond those that Advance knows of
    int num_spare_blocks = 0;   // blocks of each group that must stay free beside them
    int max_reused_blocks = 0;  // of one group
  };
  // Sets blocks aside and lends those of the longest reusable prefix: full blocks, at most
  // tokens.size() - 1 tokens (the last one is computed for its logits). Writes the number of reused
  // tokens. False when it does not fit; nothing changes then.
  bool Start(const StartParams& params, SequenceBlocks* sequence, int* num_cached_tokens);

  // Tokens that Start would reuse now.
  int MatchTokens(const StartParams& params) const;

  // Sets aside what `num_tokens` (<= max_kv_tokens) need in each group. False when too few blocks
  // are free; nothing changes then.
  bool Reserve(SequenceBlocks* sequence, int num_tokens);

  // Makes each table cover `num_tokens`. CHECKs that the reservation allows it.
  void Extend(SequenceBlocks* sequence, int num_tokens);

  // Gives each beam a spare block that has none. CHECKs that the reservation allows it.
  void AddSpares(SequenceBlocks* sequence);

  // Beam j goes on from beam parents[j], [num_beams]. Each holds `num_tokens` and has a spare.
  void Reorder(SequenceBlocks* sequence, std::span<const int32_t> parents, int num_tokens);

  // Offers the full blocks of tokens[0, num_valid), whose K and V are written, for reuse.
  void Publish(SequenceBlocks* sequence, std::span<const TokenId> tokens, int num_valid);

  // K and V of the first `num_kv_tokens` tokens are written, and no step in flight computes one of
  // them: gives back the blocks that no other token sees. Publish first. Until the next call at
  // most `max_ahead_tokens` are planned beyond those, planned ones included: what was set aside for
  // more serves others.
  void Advance(SequenceBlocks* sequence, int num_kv_tokens, int max_ahead_tokens);

  // What the device copies before the step that is planned now, oldest first; at most kMaxCopies.
  std::span<const HostCopy> copies() const { return host_copies_; }
  void ClearCopies() { host_copies_.clear(); }

  // The sequence grows no more: what was set aside for it serves others.
  void EndGrowth(SequenceBlocks* sequence);

  // No contents are known any more, of the host pool neither. Nobody holds a block.
  void Forget();

  // Gives all blocks back, the last one first, so that leaves of the tree are evicted first.
  void Free(SequenceBlocks* sequence);

  // Blocks that must be set aside beyond what is, before each beam can hold `num_tokens`.
  int NumMissing(const SequenceBlocks& sequence, int group, int num_tokens) const;

  // Blocks of a group, and those of them that nobody holds.
  int64_t num_blocks(int group) const {
    return groups_[static_cast<size_t>(group)]->pool.num_blocks();
  }
  int64_t num_free(int group) const { return groups_[static_cast<size_t>(group)]->pool.num_free(); }

  // The most blocks of a group with a window that a sequence holds at once, of whatever length.
  static int64_t WindowBlocks(const GroupConfig& config, int max_ahead_tokens);

  // Blocks of a group that a sequence needs for itself: of a beam search the prompt's full blocks
  // once, all others for each beam, and the spares.
  static int64_t BlocksOf(int num_prompt_tokens, int num_tokens, int num_beams, int block_size);

  bool enable_prefix_reuse() const { return enable_prefix_reuse_; }
  int num_groups() const { return static_cast<int>(groups_.size()); }
  int block_size(int group) const { return groups_[static_cast<size_t>(group)]->config.block_size; }
  int window() const { return window_; }         // the largest of a group; 0 = none has one
  bool keeps_all() const { return keeps_all_; }  // whether a group has none
  // Changes whenever a Start that failed might succeed.
  uint64_t version() const { return version_; }
  KvCacheStats stats() const;

 private:
  struct Group {
    Group(int group_idx, const GroupConfig& group_config, PrefixIndex::HashFunction hash,
          std::function<void(Group&, BlockId)> on_evict);
    bool IsHost(BlockId block) const { return block >= config.num_blocks; }
    BlockId HostIdx(BlockId block) const { return block - static_cast<BlockId>(config.num_blocks); }
    int num_sink_blocks() const { return BlocksFor(config.num_sinks, config.block_size); }
    // The first block behind the sinks' that the token at `position` or a later one sees.
    int FirstSeen(int position) const;
    // Blocks that a table without beams holds.
    int NumHeld(const GroupTable& table) const;
    // No later token of the sequence sees block `block_idx` of its table.
    void Pass(GroupTable* table, int block_idx);

    int idx;
    GroupConfig config;
    bool follows_first = false;
    std::vector<bool> is_passed;  // [num_blocks] reusable ones: of what was generated
    PrefixIndex index;
    BlockPool pool;
    BlockPool host;  // by HostIdx; blocks whose contents are known are reusable
    int64_t num_reserved = 0;
    int64_t num_claimed = 0;  // with a window; of all sequences

    // Blocks that nobody has set aside.
    int64_t num_available() const {
      return config.window > 0 ? config.num_blocks - num_claimed : pool.num_free() - num_reserved;
    }
    void Claim(GroupTable* table, int num_blocks) {
      if (config.window == 0) return;
      table->num_claimed += num_blocks;
      num_claimed += num_blocks;
    }
  };

  // What is reused of a text: tokens, and of each group the nodes of their blocks. In one that
  // follows the first, blocks that no token behind sees are -1.
  struct Prefix {
    int num_tokens = 0;
    std::vector<std::vector<PrefixIndex::Node>> nodes;  // [num_groups][blocks]
  };
  Prefix Match(const StartParams& params) const;
  void MatchChain(const Group& group, const StartParams& params, int max_copies,
                  Prefix* prefix) const;
  int NumSeen(const Group& group, const StartParams& params, int max_copies,
              const Prefix& prefix) const;
  PrefixIndex::Node FindBehind(const Group& group, const StartParams& params, const Prefix& prefix,
                               int idx) const;
  void RoundDown(Prefix* prefix) const;
  static int NumLent(const Group& group, const StartParams& params, int num_cached_tokens);
  static int NumReserved(const Group& group, const StartParams& params, int num_cached_tokens);
  bool Fits(const Group& group, const StartParams& params, const Prefix& prefix) const;
  static bool IsLent(const Group& group, const StartParams& params, int num_cached_tokens, int idx);
  template <typename Function>
  static void ForEachLent(const Group& group, const StartParams& params, const Prefix& prefix,
                          Function function);
  static int NumOnboards(const Group& group, const StartParams& params, const Prefix& prefix);
  void Evict(Group& group, BlockId block);
  void Onboard(Group& group, BlockId* block);
  void Lend(Group& group, const StartParams& params, const Prefix& prefix, GroupTable* table);
  void PublishIn(Group& group, SequenceBlocks* sequence, std::span<const TokenId> tokens,
                 int num_valid);
  void PublishBehind(const PrefixIndex::Node& parent, std::span<const TokenId> block_tokens,
                     int block_idx, SequenceBlocks* sequence);
  void Grow(Group& group, GroupTable* table, int num_tokens, BlockTable* beam);
  void TakeReserved(Group& group, GroupTable* table, std::span<BlockId> blocks);
  static void ReleaseAll(Group& group, BlockTable* beam);

  std::vector<std::unique_ptr<Group>> groups_;
  bool enable_prefix_reuse_;
  int window_ = 0;
  bool keeps_all_ = false;
  uint64_t version_ = 1;
  int64_t alloc_new_ = 0, reused_ = 0, missed_ = 0, offloaded_ = 0, onboarded_ = 0;
  std::vector<HostCopy> host_copies_;
  int num_promised_copies_ = 0;  // of the Start under way
  // Reorder's.
  std::vector<BeamTableView> views_;
  std::vector<BlockCopy> copies_;
};

}  // namespace inflight::kv_cache

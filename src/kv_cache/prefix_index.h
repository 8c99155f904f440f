// SPDX-License-Identifier: Apache-2.0
// Which full blocks hold the K and V of which tokens: a tree of blocks, found by a hash chain.
//
// A node is one block: its tokens, after those of its parent. The hash of a node covers its tokens
// and, by the chain, everything before them and the salt. A hash only finds candidates: a hit
// compares parent, salt and the tokens themselves, because collisions of xxHash can be made on
// purpose and would show one client another's context.
//
// Nodes have identities that are never reused, so the children of an erased node can no longer be
// reached, whatever its block holds next.
//
// Threads: executor thread only. No allocation after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inflight/kv_events.h"
#include "inflight/request.h"
#include "kv_cache/block_pool.h"

namespace inflight::kv_cache {

class PrefixIndex {
 public:
  // A place in the tree: a block, or the root of one salt. Stale once its block was erased or
  // moved.
  struct Node {
    BlockId block = -1;  // -1: the root
    uint64_t id = 0;     // 0: the root
    uint64_t hash = 0;
    uint64_t salt = 0;
  };

  using HashFunction = uint64_t (*)(const void* data, size_t bytes, uint64_t seed);
  static uint64_t XxHash(const void* data, size_t bytes, uint64_t seed);

  // Another `hash` is for tests of collisions.
  PrefixIndex(int64_t num_blocks, int block_size, HashFunction hash = &XxHash);

  // From here on `observer`, which outlives this, is told what is inserted, erased and moved.
  // Blocks from `num_device_blocks` on are the host's.
  void Observe(KvObserver* observer, int64_t num_device_blocks);

  Node Root(uint64_t salt) const;

  // The child of `parent` that holds exactly `tokens` [block_size]; block -1 when there is none.
  Node Find(const Node& parent, std::span<const TokenId> tokens) const;

  // Makes `block` the child of `parent` with these tokens. The block is not in the index, and
  // Find(parent, tokens) finds nothing.
  Node Insert(const Node& parent, std::span<const TokenId> tokens, BlockId block);

  void Clear();               // all blocks
  void Erase(BlockId block);  // no effect when the block is not in the index

  // The node of block `from` is block `to`'s from now on, which is not in the index.
  void Move(BlockId from, BlockId to);

  bool Contains(BlockId block) const { return entries_[static_cast<size_t>(block)].id != 0; }
  bool IsLive(const Node& node) const {
    return node.id == 0 || entries_[static_cast<size_t>(node.block)].id == node.id;
  }

 private:
  struct Entry {
    uint64_t id = 0;  // 0: not in the index
    uint64_t parent_id = 0;
    uint64_t parent_hash = 0;
    uint64_t hash = 0;
    uint64_t salt = 0;
    BlockId next = -1;  // in its bucket
  };

  void TellStored(BlockId block) const;

  TokenId* TokensOf(BlockId block) {
    return tokens_.data() + static_cast<size_t>(block) * block_size_;
  }
  const TokenId* TokensOf(BlockId block) const {
    return tokens_.data() + static_cast<size_t>(block) * block_size_;
  }
  KvMedium MediumOf(BlockId block) const {
    return block < num_device_blocks_ ? KvMedium::kDevice : KvMedium::kHost;
  }
  BlockId& Bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  size_t block_size_;
  HashFunction hash_;
  std::vector<Entry> entries_;    // [num_blocks]
  std::vector<TokenId> tokens_;   // [num_blocks, block_size]
  std::vector<BlockId> buckets_;  // a power of two; first block of each chain, or -1
  uint64_t next_id_ = 1;
  KvObserver* observer_ = nullptr;
  int64_t num_device_blocks_ = 0;
};

}  // namespace inflight::kv_cache

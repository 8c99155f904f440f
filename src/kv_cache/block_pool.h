// SPDX-License-Identifier: Apache-2.0
// Fixed pool of KV cache blocks of one KV group, shared by all sequences of one executor.
//
//   free --Allocate--> used (refs >= 1) --last Release--> free, or reusable when it is kept
//   reusable --Take--> used        reusable --Allocate, least recently released first--> used
//
// Of reusable blocks those of ReleaseFirst are handed out before all others.
//
// Units:   blocks. Device memory is owned by the backend, not here.
// Threads: executor thread only; no locks, and no allocation after construction.
// Errors:  Allocate returns kResourceExhausted when fewer than `n` blocks are free or reusable;
//          nothing is allocated then.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "inflight/status.h"

namespace inflight::kv_cache {

using BlockId = int32_t;  // index of a block in its group's pool: [0, num_blocks)

class BlockPool {
 public:
  // `on_evict` is called for each reusable block that Allocate takes, before it is handed out.
  BlockPool(int64_t num_blocks, std::function<void(BlockId)> on_evict);

  // Fills `out` with blocks of one reference each, whose contents are undefined.
  Status Allocate(std::span<BlockId> out);

  void Take(BlockId block);  // one more reference, to a used or a reusable block

  // Drops one reference. The last one makes the block free, or reusable if `keep_contents`.
  void Release(BlockId block, bool keep_contents);
  void ReleaseFirst(BlockId block);  // the same, and its contents are kept

  void FreeReusable();  // forgets the contents of all reusable blocks; on_evict is not called

  int refs(BlockId block) const { return blocks_[static_cast<size_t>(block)].refs; }
  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()) - 2; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()) + num_reusable_; }
  int64_t num_reusable() const { return num_reusable_; }
  int64_t num_used() const { return num_blocks() - num_free(); }

 private:
  struct Block {
    int32_t refs = 0;
    bool reusable = false;
    BlockId previous = 0, next = 0;  // in a list of reusable blocks
  };

  void Append(BlockId head, BlockId block);
  void Unlink(BlockId block);

  BlockId head() const { return static_cast<BlockId>(num_blocks()); }
  BlockId first_head() const { return head() + 1; }

  // [num_blocks + 2]; behind the blocks the heads of the lists of reusable ones, the second that of
  // those that are handed out first.
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  int64_t num_reusable_ = 0;
  std::function<void(BlockId)> on_evict_;
};

}  // namespace inflight::kv_cache

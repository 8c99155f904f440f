// SPDX-License-Identifier: Apache-2.0
#include "kv_cache/block_pool.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace inflight::kv_cache {

BlockPool::BlockPool(int64_t num_blocks, std::function<void(BlockId)> on_evict)
    : blocks_(static_cast<size_t>(num_blocks) + 2), on_evict_(std::move(on_evict)) {
  for (const BlockId list : {head(), first_head()})
    blocks_[static_cast<size_t>(list)].previous = blocks_[static_cast<size_t>(list)].next = list;
  free_.reserve(static_cast<size_t>(num_blocks));
  for (BlockId block = head() - 1; block >= 0; --block) free_.push_back(block);
}

Status BlockPool::Allocate(std::span<BlockId> out) {
  if (num_free() < static_cast<int64_t>(out.size())) {
    return OutOfMemory("KV cache: " + std::to_string(out.size()) + " blocks wanted, " +
                       std::to_string(num_free()) + " free");
  }
  for (BlockId& block : out) {
    if (!free_.empty()) {
      block = free_.back();
      free_.pop_back();
    } else {
      block = blocks_[static_cast<size_t>(first_head())].next;
      if (block == first_head()) block = blocks_[static_cast<size_t>(head())].next;
      Unlink(block);
      on_evict_(block);
    }
    blocks_[static_cast<size_t>(block)].refs = 1;
  }
  return Status::Ok();
}

void BlockPool::Take(BlockId block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  if (entry.refs == 0) {
    CHECK(entry.reusable);
    Unlink(block);
  }
  ++entry.refs;
}

void BlockPool::Release(BlockId block, bool keep_contents) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  CHECK_GT(entry.refs, 0);
  if (--entry.refs > 0) return;
  if (keep_contents) {
    Append(head(), block);
  } else {
    free_.push_back(block);
  }
}

void BlockPool::FreeReusable() {
  for (const BlockId list : {first_head(), head()})
    while (blocks_[static_cast<size_t>(list)].next != list) {
      const BlockId block = blocks_[static_cast<size_t>(list)].next;
      Unlink(block);
      free_.push_back(block);
    }
}

void BlockPool::ReleaseFirst(BlockId block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  CHECK_GT(entry.refs, 0);
  if (--entry.refs == 0) Append(first_head(), block);
}

// To a list of reusable blocks.
void BlockPool::Append(BlockId head, BlockId block) {
  Block& list = blocks_[static_cast<size_t>(head)];
  Block& entry = blocks_[static_cast<size_t>(block)];
  entry.reusable = true;
  entry.next = head;
  entry.previous = list.previous;
  blocks_[static_cast<size_t>(entry.previous)].next = block;
  list.previous = block;
  ++num_reusable_;
}

void BlockPool::Unlink(BlockId block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  blocks_[static_cast<size_t>(entry.previous)].next = entry.next;
  blocks_[static_cast<size_t>(entry.next)].previous = entry.previous;
  entry.reusable = false;
  --num_reusable_;
}

}  // namespace inflight::kv_cache

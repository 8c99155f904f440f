// SPDX-License-Identifier: Apache-2.0
#include "kv_cache/prefix_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>

#include "base/check.h"

namespace inflight::kv_cache {

uint64_t PrefixIndex::XxHash(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

PrefixIndex::PrefixIndex(int64_t num_blocks, int block_size, HashFunction hash)
    : block_size_(static_cast<size_t>(block_size)),
      hash_(hash),
      entries_(static_cast<size_t>(num_blocks)),
      tokens_(static_cast<size_t>(num_blocks) * static_cast<size_t>(block_size)),
      buckets_(std::bit_ceil(static_cast<size_t>(num_blocks) * 2 + 1), -1) {}

void PrefixIndex::Observe(KvObserver* observer, int64_t num_device_blocks) {
  observer_ = observer;
  num_device_blocks_ = num_device_blocks;
}

void PrefixIndex::TellStored(BlockId block) const {
  const Entry& entry = entries_[static_cast<size_t>(block)];
  observer_->OnStored({.hash = entry.hash,
                       .parent_hash = entry.parent_hash,
                       .has_parent = entry.parent_id != 0,
                       .tokens = {TokensOf(block), block_size_},
                       .salt = entry.salt,
                       .medium = MediumOf(block)});
}

PrefixIndex::Node PrefixIndex::Root(uint64_t salt) const {
  return {.block = -1, .id = 0, .hash = hash_(&salt, sizeof(salt), 0), .salt = salt};
}

PrefixIndex::Node PrefixIndex::Find(const Node& parent, std::span<const TokenId> tokens) const {
  const size_t bytes = block_size_ * sizeof(TokenId);
  const uint64_t hash = hash_(tokens.data(), bytes, parent.hash);
  BlockId block = buckets_[hash & (buckets_.size() - 1)];
  while (block >= 0) {
    const Entry& entry = entries_[static_cast<size_t>(block)];
    if (entry.hash == hash && entry.parent_id == parent.id && entry.salt == parent.salt &&
        std::memcmp(TokensOf(block), tokens.data(), bytes) == 0) {
      return {.block = block, .id = entry.id, .hash = hash, .salt = entry.salt};
    }
    block = entry.next;
  }
  return {};
}

PrefixIndex::Node PrefixIndex::Insert(const Node& parent, std::span<const TokenId> tokens,
                                      BlockId block) {
  CHECK_EQ(tokens.size(), block_size_);
  Entry& entry = entries_[static_cast<size_t>(block)];
  CHECK_EQ(entry.id, 0u);
  const size_t bytes = block_size_ * sizeof(TokenId);
  entry.id = next_id_++;
  entry.parent_id = parent.id;
  entry.parent_hash = parent.hash;
  entry.hash = hash_(tokens.data(), bytes, parent.hash);
  entry.salt = parent.salt;
  std::memcpy(TokensOf(block), tokens.data(), bytes);
  BlockId& bucket = Bucket(entry.hash);
  entry.next = bucket;
  bucket = block;
  if (observer_ != nullptr) TellStored(block);
  return {.block = block, .id = entry.id, .hash = entry.hash, .salt = entry.salt};
}

void PrefixIndex::Move(BlockId from, BlockId to) {
  Entry& old = entries_[static_cast<size_t>(from)];
  Entry& entry = entries_[static_cast<size_t>(to)];
  CHECK_NE(old.id, 0u);
  CHECK_EQ(entry.id, 0u);
  BlockId* link = &Bucket(old.hash);
  while (*link != from) link = &entries_[static_cast<size_t>(*link)].next;
  *link = to;
  std::memcpy(TokensOf(to), TokensOf(from), block_size_ * sizeof(TokenId));
  entry = old;
  old = Entry{};
  if (observer_ == nullptr) return;
  TellStored(to);
  observer_->OnRemoved(entry.hash, MediumOf(from));
}

void PrefixIndex::Clear() {
  KvObserver* const observer = observer_;
  if (observer != nullptr && observer->OnCleared()) observer_ = nullptr;
  for (size_t block = 0; block < entries_.size(); ++block) Erase(static_cast<BlockId>(block));
  observer_ = observer;
}

void PrefixIndex::Erase(BlockId block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  if (entry.id == 0) return;
  BlockId* link = &Bucket(entry.hash);
  while (*link != block) link = &entries_[static_cast<size_t>(*link)].next;
  *link = entry.next;
  if (observer_ != nullptr) observer_->OnRemoved(entry.hash, MediumOf(block));
  entry = Entry{};
}

}  // namespace inflight::kv_cache

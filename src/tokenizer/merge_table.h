// SPDX-License-Identifier: Apache-2.0
// The merges of a byte-pair model: (left id, right id) -> (rank, merged id), as one flat array.
#pragma once

#include <cstdint>
#include <vector>

#include "inflight/request.h"

namespace inflight::tokenizer {

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;  // lower goes first
    TokenId id = -1;
  };

  explicit MergeTable(size_t num_merges = 0) {
    size_t capacity = 16;
    while (capacity < 2 * num_merges) capacity *= 2;
    slots_.resize(capacity);
    shift_ = 64 - __builtin_ctzll(capacity);
  }

  // A pair given again takes the later rank, as the `tokenizers` package has it.
  void Set(TokenId left, TokenId right, Merge merge) {
    Slot& slot = slots_[Find(Key(left, right))];
    slot = {Key(left, right), merge};
  }
  Merge Get(TokenId left, TokenId right) const { return slots_[Find(Key(left, right))].merge; }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;  // ids are not negative, so no key is this
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };

  static uint64_t Key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t Find(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
    size_t i = (h * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[i].key != key && slots_[i].key != kFree) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;  // at most half full
  int shift_;
};

}  // namespace inflight::tokenizer

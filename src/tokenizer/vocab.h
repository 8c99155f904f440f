// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a model: token strings and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight::tokenizer {

inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;  // bounds the tables that a file can ask for

// Strings by small integer; empty where none was set.
class StringTable {
 public:
  std::string_view operator[](TokenId id) const {
    if (!Has(id)) return {};
    const Entry& entry = entries_[static_cast<size_t>(id)];
    return std::string_view(bytes_).substr(entry.begin, entry.size);
  }
  bool Has(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() &&
           entries_[static_cast<size_t>(id)].size != kAbsent;
  }
  TokenId size() const { return static_cast<TokenId>(entries_.size()); }
  void Set(TokenId id, std::string_view text);

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Entry {
    uint64_t begin = 0;
    uint32_t size = kAbsent;
  };
  std::string bytes_;
  std::vector<Entry> entries_;
};

class Vocab {
 public:
  // kInvalidArgument: an id outside [0, kMaxTokenId], or a token or id given twice.
  Status Add(std::string_view token, int64_t id);
  // A token that `id` reads as too, while Find goes on to give the id that was added first.
  Status AddHomonym(std::string_view token, int64_t id);

  std::optional<TokenId> Find(std::string_view token) const;
  bool Has(TokenId id) const { return tokens_.Has(id); }
  std::string_view Token(TokenId id) const { return tokens_[id]; }
  TokenId end_id() const { return tokens_.size(); }  // largest id + 1
  size_t size() const { return count_; }             // number of ids

 private:
  Status CheckFree(std::string_view token, int64_t id) const;
  void Grow();
  size_t Slot(std::string_view token) const;  // where `token` is or would be

  StringTable tokens_;
  std::vector<TokenId> slots_;  // open addressing over the strings; -1 free; a power of two
  std::unordered_set<TokenId> homonyms_;
  size_t count_ = 0;
};

}  // namespace inflight::tokenizer

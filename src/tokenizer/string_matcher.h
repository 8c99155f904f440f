// SPDX-License-Identifier: Apache-2.0
// Finds strings of a set in a text: the leftmost, of those the longest, without overlaps.
//
// Threads: immutable after the last Add; the other methods are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inflight/request.h"

namespace inflight::tokenizer {

class StringMatcher {
 public:
  void Add(std::string_view pattern, TokenId id);  // a pattern given again takes the new id
  bool empty() const { return num_nodes_ == 1; }
  bool MayBegin(char c) const { return is_first_byte_[static_cast<uint8_t>(c)]; }

  struct Match {
    size_t begin, end;
    TokenId id;
  };
  std::optional<Match> FindFrom(std::string_view text, size_t begin) const;
  std::optional<Match> LongestAt(std::string_view text, size_t begin) const;

 private:
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<TokenId> id_of_node_ = {-1};        // -1: no pattern ends here
  uint32_t num_nodes_ = 1;
  std::array<bool, 256> is_first_byte_{};
};

}  // namespace inflight::tokenizer

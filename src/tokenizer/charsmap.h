// SPDX-License-Identifier: Apache-2.0
// The compiled replacement rules of a SentencePiece normalizer (nmt_nfkc, nfkc_cf, a user's table).
//
// Layout of the file: uint32 size of the trie in bytes; the trie, a double array of darts-clone;
// the replacements, each ended by a zero byte. All little-endian. A unit of the trie is 32 bits:
//   bits 0-7 label, 8 a value hangs below, 9 scale of the offset, 10-30 offset, 31 this is a value.
// Threads: immutable after Parse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::tokenizer {

class Charsmap {
 public:
  // kInvalidArgument says what is wrong.
  static Result<Charsmap> Parse(std::string_view file);

  struct Match {
    uint32_t size = 0;  // bytes of the text that the rule replaces; 0: none begins here
    std::string_view replacement;
  };
  // The longest rule for text that begins with `text` (valid UTF-8).
  Match Longest(std::string_view text) const;
  // What the shortest rule that `text` begins with makes of it; none if there is none. A rule does
  // not go beyond a zero byte.
  std::optional<std::string_view> Shortest(std::string_view text) const;
  // Some rule may begin with `prefix`.
  bool MayBeginWith(std::string_view prefix) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace inflight::tokenizer

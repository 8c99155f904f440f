// SPDX-License-Identifier: Apache-2.0
// Strings with an id and a score, found by walking a text byte by byte: a double array.
//
// A node is an index. Its child by byte b is node.base ^ b, if that unit's parent is the node.
// Threads: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight::tokenizer {

// Of a piece, as in the `sentencepiece` package: what a walk may cost at each character of a text.
inline constexpr size_t kMaxPieceBytes = 7999;
// kInvalidArgument says how long the piece may be.
Status CheckPieceBytes(std::string_view piece);

class PieceTrie {
 public:
  struct Entry {
    std::string_view text;  // not empty
    TokenId id;
    float score;
  };
  struct Unit {  // 16 bytes: a step of a walk reads one cache line
    uint32_t base = 0;
    uint32_t parent = UINT32_MAX;  // UINT32_MAX: free
    TokenId id = -1;               // -1: no string ends here
    float score = 0;
  };

  PieceTrie() : PieceTrie(std::vector<Entry>()) {}
  explicit PieceTrie(std::vector<Entry> entries);  // texts must differ

  static constexpr uint32_t kRoot = 0;
  // The unit that `byte` leads to from `node`, which becomes it; null if there is none.
  const Unit* Step(uint32_t& node, uint8_t byte) const {
    const uint32_t next = units_[node].base ^ byte;
    const Unit& unit = units_[next];
    if (unit.parent != node) return nullptr;
    node = next;
    return &unit;
  }

 private:
  class Builder;
  std::vector<Unit> units_;  // a multiple of 256, so that base ^ byte is always inside
};

}  // namespace inflight::tokenizer

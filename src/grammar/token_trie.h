// SPDX-License-Identifier: Apache-2.0
// The tokens of a vocabulary by their bytes, as a tree: what tokens begin with alike is read once.
//
// Nodes stand in the order in which one meets them going down first, children by their bytes. So
// the tokens of all nodes in this order are those that have bytes, sorted, and what lies below a
// node is a range of nodes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "inflight/bad_texts.h"

namespace inflight::grammar {

struct TokenTrie {
  static constexpr uint32_t kRoot = 0;

  struct Node {
    uint32_t end;          // one behind the last node below this one
    uint32_t first_token;  // of `tokens`; the node's own end where those of the next node begin
    uint8_t byte;
  };
  std::vector<Node> nodes;  // and one behind the last
  std::vector<TokenId> tokens;
  std::vector<uint32_t> parents;               // [num_nodes] the root's is itself
  std::vector<uint32_t> by_byte;               // all nodes but the root, by their bytes
  std::array<uint32_t, 257> byte_begins = {};  // of each byte's in by_byte
  int num_tokens = 0;                          // of the vocabulary
  uint32_t longest = 0;                        // bytes of a token

  uint32_t num_nodes() const { return static_cast<uint32_t>(nodes.size() - 1); }
  std::span<const TokenId> TokensOf(uint32_t node) const {
    const uint32_t first = nodes[node].first_token;
    return std::span(tokens).subspan(first, nodes[node + 1].first_token - first);
  }
  std::span<const uint32_t> NodesOf(uint8_t byte) const {
    return std::span(by_byte).subspan(byte_begins[byte],
                                      byte_begins[byte + 1U] - byte_begins[byte]);
  }
  bool HasChildren(uint32_t node) const { return nodes[node].end > node + 1; }
};

inline std::string_view TextOf(const TokenTexts& texts, TokenId id) {
  const uint32_t begin = texts.begins[static_cast<size_t>(id)];
  return std::string_view(texts.bytes)
      .substr(begin, texts.begins[static_cast<size_t>(id) + 1] - begin);
}

// One for each vocabulary, shared by all that hold it at a time. Any thread.
std::shared_ptr<const TokenTrie> TrieOf(const std::shared_ptr<const TokenTexts>& texts);

}  // namespace inflight::grammar

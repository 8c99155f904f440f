// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <string_view>

namespace inflight::grammar {
namespace {

void SortByByte(TokenTrie& trie) {
  for (uint32_t node = 1; node < trie.num_nodes(); ++node) {
    ++trie.byte_begins[trie.nodes[node].byte + 1U];
  }
  std::partial_sum(trie.byte_begins.begin(), trie.byte_begins.end(), trie.byte_begins.begin());
  std::array<uint32_t, 257> places = trie.byte_begins;
  trie.by_byte.resize(trie.num_nodes() - 1);
  for (uint32_t node = 1; node < trie.num_nodes(); ++node) {
    trie.by_byte[places[trie.nodes[node].byte]++] = node;
  }
}

std::shared_ptr<const TokenTrie> MakeTrie(const TokenTexts& texts) {
  auto trie = std::make_shared<TokenTrie>();
  trie->num_tokens = texts.num_tokens();
  trie->nodes.push_back({.end = 0, .first_token = 0, .byte = 0});
  trie->parents.push_back(TokenTrie::kRoot);
  std::vector<uint32_t> path = {TokenTrie::kRoot};  // [i] the node behind i bytes
  std::string_view previous;
  const auto leave_to = [&](size_t size) {
    for (; path.size() > size; path.pop_back()) {
      trie->nodes[path.back()].end = static_cast<uint32_t>(trie->nodes.size());
    }
  };
  for (const TokenId id : texts.sorted) {
    const std::string_view text = TextOf(texts, id);
    if (text.empty()) continue;
    const auto differs = std::ranges::mismatch(text, previous).in1;
    const auto shared = static_cast<size_t>(differs - text.begin());
    leave_to(shared + 1);
    for (size_t i = shared; i < text.size(); ++i) {
      trie->parents.push_back(path.back());
      path.push_back(static_cast<uint32_t>(trie->nodes.size()));
      trie->nodes.push_back({.end = 0,
                             .first_token = static_cast<uint32_t>(trie->tokens.size()),
                             .byte = static_cast<uint8_t>(text[i])});
    }
    trie->tokens.push_back(id);
    trie->longest = std::max(trie->longest, static_cast<uint32_t>(text.size()));
    previous = text;
  }
  leave_to(0);
  trie->nodes.push_back(
      {.end = 0, .first_token = static_cast<uint32_t>(trie->tokens.size()), .byte = 0});
  SortByByte(*trie);
  return trie;
}

// Tries that are in use, by their vocabulary. A server has as many as models.
struct TrieTable {
  struct Entry {
    std::weak_ptr<const TokenTexts> texts;
    std::weak_ptr<const TokenTrie> trie;
  };
  std::mutex mutex;
  std::vector<Entry> entries;
};

TrieTable& Table() {
  static auto& table = *new TrieTable;
  return table;
}

}  // namespace

std::shared_ptr<const TokenTrie> TrieOf(const std::shared_ptr<const TokenTexts>& texts) {
  TrieTable& table = Table();
  const std::lock_guard lock(table.mutex);
  std::erase_if(table.entries,
                [](const auto& entry) { return entry.texts.expired() || entry.trie.expired(); });
  for (const TrieTable::Entry& entry : table.entries) {
    if (entry.texts.lock() != texts) continue;
    if (auto trie = entry.trie.lock()) return trie;
  }
  auto trie = MakeTrie(*texts);
  table.entries.push_back({texts, trie});
  return trie;
}

}  // namespace inflight::grammar

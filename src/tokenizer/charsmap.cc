// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/charsmap.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kMaxRuleBytes = 1000;  // a broken trie may lead in circles

bool HasValue(uint32_t unit) { return unit >> 8 & 1; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FFu; }  // of a value: never that of a byte
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit >> 9 & 1) * 8); }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFFu; }

bool ContinuesCharacter(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

Result<Charsmap> Charsmap::Parse(std::string_view file) {
  uint32_t trie_bytes = 0;
  if (file.size() < sizeof trie_bytes) return InvalidArgument("ends within its header");
  std::memcpy(&trie_bytes, file.data(), sizeof trie_bytes);
  file.remove_prefix(sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes >= file.size()) {
    return InvalidArgument("says " + std::to_string(trie_bytes) + " bytes of trie, has " +
                           std::to_string(file.size()) + " bytes");
  }
  Charsmap map;
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), file.data(), trie_bytes);
  map.replacements_ = std::string(file.substr(trie_bytes));
  if (map.replacements_.back() != '\0' || FindInvalidUtf8(map.replacements_)) {
    return InvalidArgument("replacements must be valid UTF-8, each ended by a zero byte");
  }
  return map;
}

Charsmap::Match Charsmap::Longest(std::string_view text) const {
  Match match;
  size_t node = Offset(units_[0]);
  const size_t end = std::min(text.size(), kMaxRuleBytes);
  for (size_t i = 0; i < end; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasValue(unit) || node >= units_.size()) continue;
    const uint32_t value = Value(units_[node]);
    // Rules are whole characters; a file that says otherwise gets no match.
    if (value >= replacements_.size() || ContinuesCharacter(replacements_[value])) continue;
    if (i + 1 < text.size() && ContinuesCharacter(text[i + 1])) continue;
    match = {static_cast<uint32_t>(i + 1), std::string_view(replacements_.data() + value)};
  }
  return match;
}

std::optional<std::string_view> Charsmap::Shortest(std::string_view text) const {
  size_t node = Offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || Label(units_[node]) != byte) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasValue(unit)) continue;
    const uint32_t value = node < units_.size() ? Value(units_[node]) : UINT32_MAX;
    if (value >= replacements_.size() || ContinuesCharacter(replacements_[value])) break;
    return std::string_view(replacements_.data() + value);
  }
  return std::nullopt;
}

bool Charsmap::MayBeginWith(std::string_view prefix) const {
  size_t node = Offset(units_[0]);
  for (const char c : prefix) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) return false;
    node ^= Offset(units_[node]);
  }
  return true;
}

}  // namespace inflight::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/string_matcher.h"

namespace inflight::tokenizer {

void StringMatcher::Add(std::string_view pattern, TokenId id) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const uint64_t edge = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
    const auto [it, inserted] = edges_.try_emplace(edge, num_nodes_);
    if (inserted) {
      ++num_nodes_;
      id_of_node_.push_back(-1);
    }
    node = it->second;
  }
  id_of_node_[node] = id;
  is_first_byte_[static_cast<uint8_t>(pattern[0])] = true;
}

std::optional<StringMatcher::Match> StringMatcher::LongestAt(std::string_view text,
                                                             size_t begin) const {
  if (begin >= text.size() || !MayBegin(text[begin])) return std::nullopt;
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const auto it = edges_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[i]));
    if (it == edges_.end()) break;
    node = it->second;
    if (id_of_node_[node] >= 0) longest = Match{begin, i + 1, id_of_node_[node]};
  }
  return longest;
}

std::optional<StringMatcher::Match> StringMatcher::FindFrom(std::string_view text,
                                                            size_t begin) const {
  for (; begin < text.size(); ++begin) {
    if (const auto match = LongestAt(text, begin)) return match;
  }
  return std::nullopt;
}

}  // namespace inflight::tokenizer

// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/stop_text.h"

#include <algorithm>
#include <utility>

namespace inflight::serving {

StopText::StopText(Words words, bool trims) : words_(std::move(words)), trims_(trims) {
  for (const std::string& word : *words_) longest_ = std::max(longest_, word.size());
}

std::string StopText::Feed(std::string chunk) {
  if (found_) return {};
  if (words_->empty()) return chunk;
  const size_t num_before = tail_.size();
  const size_t num_sent = trims_ ? 0 : num_before;  // of the tail
  tail_ += chunk;
  const Match match = Find(tail_, num_before);
  found_ = match.end > 0;
  if (found_) {
    found_word_ = *match.word;
    return tail_.substr(num_sent, (trims_ ? match.begin : match.end) - num_sent);
  }
  const size_t num_kept = trims_ ? NumHeld(tail_) : std::min(tail_.size(), longest_ - 1);
  if (trims_) chunk = tail_.substr(0, tail_.size() - num_kept);
  tail_.erase(0, tail_.size() - num_kept);
  return chunk;
}

std::string StopText::Finish() {
  if (found_ || !trims_) return {};
  return std::exchange(tail_, {});
}

// The word that ends first, the longest of those; none: an end of 0. No word ends within the first
// `num_before` bytes.
StopText::Match StopText::Find(std::string_view text, size_t num_before) const {
  Match first;
  for (const std::string& word : *words_) {
    // The tail is shorter than the longest word, but may hold all of a shorter one.
    const size_t from = num_before - std::min(num_before, word.size() - 1);
    const size_t begin = text.find(word, from);
    if (begin == std::string_view::npos) continue;
    const size_t end = begin + word.size();
    if (first.end == 0 || end < first.end || (end == first.end && begin < first.begin))
      first = {begin, end, &word};
  }
  return first;
}

// How many of the last bytes a word may begin with.
size_t StopText::NumHeld(std::string_view text) const {
  size_t num_held = 0;
  for (const std::string& word : *words_) {
    for (size_t n = std::min(word.size() - 1, text.size()); n > num_held; --n) {
      if (text.ends_with(std::string_view(word).substr(0, n))) num_held = n;
    }
  }
  return num_held;
}

}  // namespace inflight::serving

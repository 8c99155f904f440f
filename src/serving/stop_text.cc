// SPDX-License-Identifier: Apache-2.0
#include "serving/stop_text.h"

#include <algorithm>
#include <utility>

namespace inflight::serving {

StopText::StopText(std::vector<std::string> words) : words_(std::move(words)) {
  for (const std::string& word : words_) longest_ = std::max(longest_, word.size());
}

size_t StopText::Feed(std::string_view chunk) {
  if (found_) return 0;
  if (words_.empty()) return chunk.size();
  const size_t num_before = tail_.size();
  tail_ += chunk;
  size_t end = tail_.size() + 1;
  for (const std::string& word : words_) {
    // The tail is shorter than the longest word, but may hold all of a shorter one.
    const size_t from = num_before - std::min(num_before, word.size() - 1);
    if (const size_t at = tail_.find(word, from); at != std::string::npos) {
      end = std::min(end, at + word.size());
    }
  }
  found_ = end <= tail_.size();
  if (found_) return end - num_before;
  tail_.erase(0, tail_.size() - std::min(tail_.size(), longest_ - 1));
  return chunk.size();
}

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
#include "contract/word_list.h"

#include <algorithm>
#include <string>

namespace inflight::contract {
namespace {

constexpr size_t kMaxPrintedNumbers = 64;

Status Malformed(std::string what, std::span<const int32_t> list) {
  std::string message = "Sparse list must not have " + std::move(what) + ": [";
  for (size_t i = 0; i < std::min(list.size(), kMaxPrintedNumbers); ++i) {
    if (i > 0) message += ", ";
    message += std::to_string(list[i]);
  }
  if (list.size() > kMaxPrintedNumbers) message += ", ...";
  return InvalidArgument(message + "]");
}

}  // namespace

size_t NumIds(const Words& words) {
  size_t num_ids = 0;
  for (const auto& word : words) num_ids += word.size();
  return num_ids;
}

std::vector<int32_t> EncodeWordList(const Words& words, size_t min_width) {
  const size_t width = std::max(min_width, NumIds(words));
  std::vector<int32_t> list(2 * width, 0);
  std::fill(list.begin() + static_cast<std::ptrdiff_t>(width), list.end(), -1);
  size_t end = 0;
  size_t slot = width;
  for (const auto& word : words) {
    if (word.empty()) continue;
    std::copy(word.begin(), word.end(), list.begin() + static_cast<std::ptrdiff_t>(end));
    end += word.size();
    list[slot++] = static_cast<int32_t>(end);
  }
  return list;
}

Result<Words> DecodeWordList(std::span<const int32_t> list) {
  if (list.size() % 2 != 0) {
    return Malformed("odd length, got " + std::to_string(list.size()), list);
  }
  const auto ids = list.first(list.size() / 2);
  const auto ends = list.last(list.size() / 2);
  Words words;
  int32_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const int32_t end = ends[i];
    if (end < 0) {
      const auto rest = ends.subspan(i);
      if (std::any_of(rest.begin(), rest.end(), [](int32_t e) { return e != -1; })) {
        return Malformed("additional values after the first -1 offset", list);
      }
      break;
    }
    if (static_cast<size_t>(end) > ids.size()) {
      return Malformed("out-of-bound offsets, got " + std::to_string(end) + " for " +
                           std::to_string(ids.size()) + " ids",
                       list);
    }
    if (end <= begin) return Malformed("non-increasing offsets", list);
    words.emplace_back(ids.begin() + begin, ids.begin() + end);
    begin = end;
  }
  return words;
}

}  // namespace inflight::contract

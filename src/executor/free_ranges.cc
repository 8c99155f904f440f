// SPDX-License-Identifier: Apache-2.0
#include "executor/free_ranges.h"

#include <algorithm>
#include <iterator>

namespace inflight::executor {

std::optional<size_t> FreeRanges::Take(size_t size) {
  const auto found =
      std::ranges::find_if(ranges_, [&](const auto& range) { return range.second >= size; });
  if (found == ranges_.end()) return std::nullopt;
  const auto [offset, length] = *found;
  ranges_.erase(found);
  if (length > size) ranges_.emplace(offset + size, length - size);
  return offset;
}

void FreeRanges::Give(size_t offset, size_t size) {
  auto range = ranges_.emplace(offset, size).first;
  if (const auto next = std::next(range);
      next != ranges_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    ranges_.erase(next);
  }
  if (range == ranges_.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second != range->first) return;
  previous->second += range->second;
  ranges_.erase(range);
}

}  // namespace inflight::executor

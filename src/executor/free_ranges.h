// SPDX-License-Identifier: Apache-2.0
// Ranges of one piece of memory, given out and taken back: first fit, neighbours joined.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace inflight::executor {

class FreeRanges {
 public:
  explicit FreeRanges(size_t size) {
    if (size > 0) ranges_.emplace(0, size);
  }

  // The offset of `size` bytes, or none where no range is as long.
  std::optional<size_t> Take(size_t size);
  // What Take gave, of the same size.
  void Give(size_t offset, size_t size);

  size_t num_ranges() const { return ranges_.size(); }

 private:
  std::map<size_t, size_t> ranges_;  // offset -> size; no two touch
};

}  // namespace inflight::executor

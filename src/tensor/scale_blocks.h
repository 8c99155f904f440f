// SPDX-License-Identifier: Apache-2.0
// How scales and offsets of groups of a weight's columns are stored where they are not float32, as
// the blocks of GGUF files have them: of so many groups that follow each other in a row a float16,
// the unit, and an int8 of each of them. Then
//
//   scale = unit * int8        offset = unit' * int8' + middle * scale
//
// in float32; products are exact, so that an offset is rounded once. A block of one group is its
// unit alone.
#pragma once

#include <cstdint>

namespace inflight {

struct ScaleBlocks {
  int groups = 0;  // of a block, at most kMaxGroups; 0: scales and offsets are float32
  int middle = 0;

  static constexpr int kMaxGroups = 16;
  static constexpr int64_t kUnitBytes = 2;  // low, high
  bool empty() const { return groups == 0; }
  // Of a block: the unit's, and then the int8.
  int64_t num_bytes() const { return groups == 1 ? kUnitBytes : kUnitBytes + groups; }
  bool operator==(const ScaleBlocks&) const = default;
};

}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
// Blocks of packed elements as integers in groups: element k of a block stands for
//
//   code[k] * scale[g] + offset[g]        g = k / group_size
//
// Scales and offsets are the float32 products that gguf.quants.dequantize makes of a block's own.
// Without a `middle`, this in float32, rounded once, is the number that DecodeBlocks gives, but for
// the sign of zeros. With one, 8, the codes of the file begin at 0, so that offset[g] is the file's
// plus 8 scale[g], rounded: the number differs by at most 2^-22 (|offset[g]| + 4 |scale[g]|).
//
// They are also had as tensor/scale_blocks.h has them, of which they are the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensor/scale_blocks.h"

namespace inflight::artifact {

struct BlockIntegers {
  static constexpr int kMaxElements = 256;
  static constexpr int kMaxGroups = 16;

  std::string_view name;  // as of gguf::BlockType
  int num_elements;       // of a block
  int num_bytes;
  int bits;  // of a code: 4 or 8
  int group_size;
  bool has_offsets;
  int middle;  // of codes that begin at 0 in the file and lie around it here; else 0
  // [num_bytes] -> [num_elements], [num_groups], [num_groups]; null where they are not wanted.
  void (*decode)(const std::byte* block, int8_t* codes, float* scales, float* offsets);
  // [num_bytes] -> [scale_blocks().num_bytes()] of scales, and of offsets where there are any;
  // likewise.
  void (*take_units)(const std::byte* block, std::byte* scales, std::byte* offsets);

  int num_groups() const { return num_elements / group_size; }
  ScaleBlocks scale_blocks() const { return {.groups = num_groups(), .middle = middle}; }
};

// Null where blocks of that name are not such. Valid until the process ends.
const BlockIntegers* FindBlockIntegers(std::string_view name);

}  // namespace inflight::artifact

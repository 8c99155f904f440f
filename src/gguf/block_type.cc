// SPDX-License-Identifier: Apache-2.0
#include "gguf/block_type.h"

#include <algorithm>
#include <iterator>

namespace inflight::gguf {

const BlockType* FindBlockType(uint32_t number) {
  const auto* type = std::ranges::find(kBlockTypes, number, &BlockType::number);
  return type == std::end(kBlockTypes) ? nullptr : type;
}

}  // namespace inflight::gguf

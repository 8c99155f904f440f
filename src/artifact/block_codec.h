// SPDX-License-Identifier: Apache-2.0
// Blocks of packed elements, as GGUF files store quantised weights, to float32.
//
// Values are bit for bit those of gguf.quants.dequantize
// (ggml-org/llama.cpp/gguf-py/gguf/quants.py): each is made of the same float32 products and sums,
// none of them fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inflight::artifact {

struct BlockCodec {
  static constexpr int kMaxElements = 256;

  std::string_view name;  // as of gguf::BlockType
  int num_elements;       // of a block
  int num_bytes;
  void (*decode)(const std::byte* block, float* values);  // [num_bytes] -> [num_elements]
};

// Null where blocks of that name are plain elements or not supported. Valid until the process ends.
const BlockCodec* FindBlockCodec(std::string_view name);

std::string BlockCodecNames();  // "Q4_0, Q4_1, ..."

// Elements [first, first + n) of the blocks that begin at `blocks`.
void DecodeBlocks(const BlockCodec& codec, const std::byte* blocks, int64_t first, int64_t n,
                  float* values);

}  // namespace inflight::artifact

// SPDX-License-Identifier: Apache-2.0
#include "artifact/block_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>

#include "artifact/block_layout.h"
#include "gguf/block_type.h"
#include "tensor/element.h"

namespace inflight::artifact {
namespace {

using namespace block_layout;

void DecodeQ4_0(const std::byte* block, float* values) {
  const float scale = Half(block);
  for (int i = 0; i < kSmall; ++i) values[i] = scale * static_cast<float>(Nibble(block + 2, i) - 8);
}

void DecodeQ4_1(const std::byte* block, float* values) {
  const float scale = Half(block);
  const float least = Half(block + 2);
  for (int i = 0; i < kSmall; ++i) {
    const float scaled = scale * static_cast<float>(Nibble(block + 4, i));
    values[i] = scaled + least;
  }
}

void DecodeQ5_0(const std::byte* block, float* values) {
  const float scale = Half(block);
  for (int i = 0; i < kSmall; ++i)
    values[i] = scale * static_cast<float>(FiveBits(block + 2, block + 6, i) - 16);
}

void DecodeQ5_1(const std::byte* block, float* values) {
  const float scale = Half(block);
  const float least = Half(block + 2);
  for (int i = 0; i < kSmall; ++i) {
    const float scaled = scale * static_cast<float>(FiveBits(block + 4, block + 8, i));
    values[i] = scaled + least;
  }
}

void DecodeQ8_0(const std::byte* block, float* values) {
  const float scale = Half(block);
  for (int i = 0; i < kSmall; ++i) values[i] = static_cast<float>(SignedByte(block + 2, i)) * scale;
}

void DecodeQ2K(const std::byte* block, float* values) {
  const std::byte* quants = block + 16;
  const float scale = Half(block + 80);
  const float least = Half(block + 82);
  for (int sub = 0; sub < kLarge / 16; ++sub) {
    const float sub_scale = scale * static_cast<float>(Byte(block, sub) & 0xf);
    const float sub_least = least * static_cast<float>(Byte(block, sub) >> 4);
    for (int i = sub * 16; i < (sub + 1) * 16; ++i) {
      const float scaled = sub_scale * static_cast<float>(TwoBits(quants, i));
      values[i] = scaled - sub_least;
    }
  }
}

void DecodeQ3K(const std::byte* block, float* values) {
  const std::byte* quants = block + 32;
  const std::byte* scales = block + 96;
  const float scale = Half(block + 108);
  for (int sub = 0; sub < kLarge / 16; ++sub) {
    const float sub_scale = scale * static_cast<float>(SixBitScale(scales, sub));
    for (int i = sub * 16; i < (sub + 1) * 16; ++i) {
      const bool is_high = (Byte(block, i % 32) >> (i / 32) & 1) != 0;
      values[i] = sub_scale * static_cast<float>(TwoBits(quants, i) - (is_high ? 0 : 4));
    }
  }
}

// Q4_K, and with `fifth` Q5_K.
void DecodeWithLeast(const std::byte* block, const std::byte* fifth, const std::byte* nibbles,
                     float* values) {
  const float scale = Half(block);
  const float least = Half(block + 2);
  for (int sub = 0; sub < kLarge / 32; ++sub) {
    const ScaleAndLeast pair = SixBitPair(block + 4, sub);
    const float sub_scale = scale * static_cast<float>(pair.scale);
    const float sub_least = least * static_cast<float>(pair.least);
    for (int i = sub * 32; i < (sub + 1) * 32; ++i) {
      int quant = NibbleOfPairs(nibbles, i);
      if (fifth != nullptr) quant |= (Byte(fifth, i % 32) >> sub & 1) << 4;
      const float scaled = sub_scale * static_cast<float>(quant);
      values[i] = scaled - sub_least;
    }
  }
}

void DecodeQ4K(const std::byte* block, float* values) {
  DecodeWithLeast(block, nullptr, block + 16, values);
}

void DecodeQ5K(const std::byte* block, float* values) {
  DecodeWithLeast(block, block + 16, block + 48, values);
}

void DecodeQ6K(const std::byte* block, float* values) {
  const std::byte* high = block + 128;
  const std::byte* scales = block + 192;
  const float scale = Half(block + 208);
  for (int i = 0; i < kLarge; ++i) {
    // The halves of 128 elements: nibbles of 64 bytes, the first 64 elements in their low bits.
    const int low = Byte(block, i / 128 * 64 + i % 64) >> (i / 64 % 2 * 4) & 0xf;
    const int quant = (low | TwoBits(high, i) << 4) - 32;
    const float sub_scale = scale * static_cast<float>(SignedByte(scales, i / 16));
    values[i] = sub_scale * static_cast<float>(quant);
  }
}

void DecodeIq4Nl(const std::byte* block, float* values) {
  const float scale = Half(block);
  for (int i = 0; i < kSmall; ++i)
    values[i] = scale * static_cast<float>(kLevels[static_cast<size_t>(Nibble(block + 2, i))]);
}

void DecodeIq4Xs(const std::byte* block, float* values) {
  const float scale = Half(block);
  const int high = LoadAs<uint16_t>(block, 1);
  for (int sub = 0; sub < kLarge / kSmall; ++sub) {
    const int low = Byte(block, 4 + sub / 2) >> (sub % 2 * 4) & 0xf;
    const float sub_scale = scale * static_cast<float>((low | (high >> 2 * sub & 3) << 4) - 32);
    const std::byte* nibbles = block + 8 + sub * kHalf;
    for (int i = 0; i < kSmall; ++i)
      values[sub * kSmall + i] =
          sub_scale * static_cast<float>(kLevels[static_cast<size_t>(Nibble(nibbles, i))]);
  }
}

void DecodeMxfp4(const std::byte* block, float* values) {
  const float scale = HalfOfE8M0(block[0]);
  for (int i = 0; i < kSmall; ++i)
    values[i] = scale * static_cast<float>(kTwiceE2M1[static_cast<size_t>(Nibble(block + 1, i))]);
}

// Of the sizes that the block type has; a name that is none does not compile.
consteval BlockCodec Codec(std::string_view name, void (*decode)(const std::byte*, float*)) {
  const auto* type = std::ranges::find(gguf::kBlockTypes, name, &gguf::BlockType::name);
  return {type->name, type->num_elements, type->num_bytes, decode};
}

constexpr BlockCodec kCodecs[] = {
    Codec("Q4_0", DecodeQ4_0),   Codec("Q4_1", DecodeQ4_1),    Codec("Q5_0", DecodeQ5_0),
    Codec("Q5_1", DecodeQ5_1),   Codec("Q8_0", DecodeQ8_0),    Codec("Q2_K", DecodeQ2K),
    Codec("Q3_K", DecodeQ3K),    Codec("Q4_K", DecodeQ4K),     Codec("Q5_K", DecodeQ5K),
    Codec("Q6_K", DecodeQ6K),    Codec("IQ4_NL", DecodeIq4Nl), Codec("IQ4_XS", DecodeIq4Xs),
    Codec("MXFP4", DecodeMxfp4),
};

}  // namespace

const BlockCodec* FindBlockCodec(std::string_view name) {
  const auto* codec = std::ranges::find(kCodecs, name, &BlockCodec::name);
  return codec == std::end(kCodecs) ? nullptr : codec;
}

std::string BlockCodecNames() {
  std::string names;
  for (const BlockCodec& codec : kCodecs) {
    if (!names.empty()) names += ", ";
    names += codec.name;
  }
  return names;
}

void DecodeBlocks(const BlockCodec& codec, const std::byte* blocks, int64_t first, int64_t n,
                  float* values) {
  std::array<float, BlockCodec::kMaxElements> decoded;
  const int64_t size = codec.num_elements;
  while (n > 0) {
    const std::byte* block = blocks + first / size * codec.num_bytes;
    const int64_t skipped = first % size;
    const int64_t taken = std::min(n, size - skipped);
    if (taken == size) {
      codec.decode(block, values);
    } else {
      codec.decode(block, decoded.data());
      std::copy_n(decoded.data() + skipped, taken, values);
    }
    first += taken;
    values += taken;
    n -= taken;
  }
}

}  // namespace inflight::artifact

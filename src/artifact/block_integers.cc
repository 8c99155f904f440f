// SPDX-License-Identifier: Apache-2.0
#include "artifact/block_integers.h"

#include <algorithm>
#include <iterator>

#include "artifact/block_layout.h"
#include "gguf/block_type.h"

namespace inflight::artifact {
namespace {

using namespace block_layout;

constexpr int kMiddle = 8;  // of the codes of four bits that begin at 0

// A block of 32 with one scale. `code(i)` and `offset(scale)`.
template <typename Code, typename Offset>
void Small(const std::byte* block, int8_t* codes, float* scales, float* offsets, const Code& code,
           const Offset& offset) {
  const float scale = Half(block);
  if (codes != nullptr)
    for (int i = 0; i < kSmall; ++i) codes[i] = static_cast<int8_t>(code(i));
  if (scales != nullptr) *scales = scale;
  if (offsets != nullptr) *offsets = offset(scale);
}

float NoOffset(float) { return 0; }

void IntegersQ4_0(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const auto code = [=](int i) { return Nibble(block + 2, i) - kMiddle; };
  Small(block, codes, scales, offsets, code, NoOffset);
}

void IntegersQ4_1(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const auto code = [=](int i) { return Nibble(block + 4, i) - kMiddle; };
  const auto offset = [=](float scale) {
    const float middle = scale * kMiddle;
    return Half(block + 2) + middle;
  };
  Small(block, codes, scales, offsets, code, offset);
}

void IntegersQ5_0(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const auto code = [=](int i) { return FiveBits(block + 2, block + 6, i) - 16; };
  Small(block, codes, scales, offsets, code, NoOffset);
}

void IntegersQ5_1(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const auto code = [=](int i) { return FiveBits(block + 4, block + 8, i); };
  const auto offset = [=](float) { return Half(block + 2); };
  Small(block, codes, scales, offsets, code, offset);
}

void IntegersQ8_0(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const auto code = [=](int i) { return SignedByte(block + 2, i); };
  Small(block, codes, scales, offsets, code, NoOffset);
}

void IntegersIq4Nl(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const auto code = [=](int i) { return kLevels[static_cast<size_t>(Nibble(block + 2, i))]; };
  Small(block, codes, scales, offsets, code, NoOffset);
}

// A block of 256 in sub-blocks of `size`: code(i), scale(sub) and offset(sub).
template <typename Code, typename Scale, typename Offset>
void Large(int size, int8_t* codes, float* scales, float* offsets, const Code& code,
           const Scale& scale, const Offset& offset) {
  if (codes != nullptr)
    for (int i = 0; i < kLarge; ++i) codes[i] = static_cast<int8_t>(code(i));
  for (int sub = 0; sub < kLarge / size; ++sub) {
    if (scales != nullptr) scales[sub] = scale(sub);
    if (offsets != nullptr) offsets[sub] = offset(sub);
  }
}

void IntegersQ2K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block + 80);
  const float least = Half(block + 82);
  Large(
      16, codes, scales, offsets, [=](int i) { return TwoBits(block + 16, i); },
      [=](int sub) { return scale * static_cast<float>(Byte(block, sub) & 0xf); },
      [=](int sub) { return -(least * static_cast<float>(Byte(block, sub) >> 4)); });
}

void IntegersQ3K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block + 108);
  Large(
      16, codes, scales, offsets,
      [=](int i) {
        const bool is_high = (Byte(block, i % 32) >> (i / 32) & 1) != 0;
        return TwoBits(block + 32, i) - (is_high ? 0 : 4);
      },
      [=](int sub) { return scale * static_cast<float>(SixBitScale(block + 96, sub)); },
      [](int) { return 0.0F; });
}

void IntegersQ4K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block);
  const float least = Half(block + 2);
  const auto sub_scale = [=](int sub) {
    return scale * static_cast<float>(SixBitPair(block + 4, sub).scale);
  };
  Large(
      32, codes, scales, offsets, [=](int i) { return NibbleOfPairs(block + 16, i) - kMiddle; },
      sub_scale,
      [=](int sub) {
        const float sub_least = least * static_cast<float>(SixBitPair(block + 4, sub).least);
        const float middle = sub_scale(sub) * kMiddle;
        return middle - sub_least;
      });
}

void IntegersQ5K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block);
  const float least = Half(block + 2);
  Large(
      32, codes, scales, offsets,
      [=](int i) {
        const int fifth = Byte(block + 16, i % 32) >> (i / 32) & 1;
        return NibbleOfPairs(block + 48, i) | fifth << 4;
      },
      [=](int sub) { return scale * static_cast<float>(SixBitPair(block + 4, sub).scale); },
      [=](int sub) { return -(least * static_cast<float>(SixBitPair(block + 4, sub).least)); });
}

void IntegersQ6K(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block + 208);
  Large(
      16, codes, scales, offsets,
      [=](int i) {
        const int low = Byte(block, i / 128 * 64 + i % 64) >> (i / 64 % 2 * 4) & 0xf;
        return (low | TwoBits(block + 128, i) << 4) - 32;
      },
      [=](int sub) { return scale * static_cast<float>(SignedByte(block + 192, sub)); },
      [](int) { return 0.0F; });
}

void IntegersIq4Xs(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  const float scale = Half(block);
  const int high = LoadAs<uint16_t>(block, 1);
  Large(
      kSmall, codes, scales, offsets,
      [=](int i) {
        const int nibble = Nibble(block + 8 + i / kSmall * kHalf, i % kSmall);
        return kLevels[static_cast<size_t>(nibble)];
      },
      [=](int sub) {
        const int low = Byte(block, 4 + sub / 2) >> (sub % 2 * 4) & 0xf;
        return scale * static_cast<float>((low | (high >> 2 * sub & 3) << 4) - 32);
      },
      [](int) { return 0.0F; });
}

using Decode = void (*)(const std::byte*, int8_t*, float*, float*);

struct Form {
  int bits, group_size;
  bool has_offsets = false;
  bool is_exact = true;
};

consteval BlockIntegers Integers(std::string_view name, Form form, Decode decode) {
  const auto* type = std::ranges::find(gguf::kBlockTypes, name, &gguf::BlockType::name);
  return {type->name,      type->num_elements, type->num_bytes, form.bits,
          form.group_size, form.has_offsets,   form.is_exact,   decode};
}

constexpr BlockIntegers kIntegers[] = {
    Integers("Q4_0", {4, 32}, IntegersQ4_0),
    Integers("Q4_1", {4, 32, true, false}, IntegersQ4_1),
    Integers("Q5_0", {8, 32}, IntegersQ5_0),
    Integers("Q5_1", {8, 32, true}, IntegersQ5_1),
    Integers("Q8_0", {8, 32}, IntegersQ8_0),
    Integers("Q2_K", {4, 16, true}, IntegersQ2K),
    Integers("Q3_K", {4, 16}, IntegersQ3K),
    Integers("Q4_K", {4, 32, true, false}, IntegersQ4K),
    Integers("Q5_K", {8, 32, true}, IntegersQ5K),
    Integers("Q6_K", {8, 16}, IntegersQ6K),
    Integers("IQ4_NL", {8, 32}, IntegersIq4Nl),
    Integers("IQ4_XS", {8, 32}, IntegersIq4Xs),
};

}  // namespace

const BlockIntegers* FindBlockIntegers(std::string_view name) {
  const auto* found = std::ranges::find(kIntegers, name, &BlockIntegers::name);
  return found == std::end(kIntegers) ? nullptr : found;
}

}  // namespace inflight::artifact

// SPDX-License-Identifier: Apache-2.0
#include "artifact/block_integers.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "artifact/block_layout.h"
#include "gguf/block_type.h"

namespace inflight::artifact {
namespace {

using namespace block_layout;

constexpr int kMiddle = 8;  // of the codes of four bits that begin at 0
constexpr int kNone = -1;

// A type for each name. Of a block: kUnit and kLeast are where the float16 of scales and of offsets
// stand, Code(i) is that of element i, and Scale and Offset the int8 of a group.

struct OneGroup {  // whose scale and offset are the float16 themselves
  static int Scale(const std::byte*, int) { return 1; }
  static int Offset(const std::byte*, int) { return 1; }
};

struct Q4_0 : OneGroup {
  static constexpr std::string_view kName = "Q4_0";
  static constexpr int kBits = 4, kGroup = kSmall, kUnit = 0, kLeast = kNone;
  static int Code(const std::byte* block, int i) { return Nibble(block + 2, i) - kMiddle; }
};

struct Q4_1 : OneGroup {
  static constexpr std::string_view kName = "Q4_1";
  static constexpr int kBits = 4, kGroup = kSmall, kUnit = 0, kLeast = 2;
  static int Code(const std::byte* block, int i) { return Nibble(block + 4, i) - kMiddle; }
};

struct Q5_0 : OneGroup {
  static constexpr std::string_view kName = "Q5_0";
  static constexpr int kBits = 8, kGroup = kSmall, kUnit = 0, kLeast = kNone;
  static int Code(const std::byte* block, int i) { return FiveBits(block + 2, block + 6, i) - 16; }
};

struct Q5_1 : OneGroup {
  static constexpr std::string_view kName = "Q5_1";
  static constexpr int kBits = 8, kGroup = kSmall, kUnit = 0, kLeast = 2;
  static int Code(const std::byte* block, int i) { return FiveBits(block + 4, block + 8, i); }
};

struct Q8_0 : OneGroup {
  static constexpr std::string_view kName = "Q8_0";
  static constexpr int kBits = 8, kGroup = kSmall, kUnit = 0, kLeast = kNone;
  static int Code(const std::byte* block, int i) { return SignedByte(block + 2, i); }
};

struct Iq4Nl : OneGroup {
  static constexpr std::string_view kName = "IQ4_NL";
  static constexpr int kBits = 8, kGroup = kSmall, kUnit = 0, kLeast = kNone;
  static int Code(const std::byte* block, int i) {
    return kLevels[static_cast<size_t>(Nibble(block + 2, i))];
  }
};

struct Q2K {
  static constexpr std::string_view kName = "Q2_K";
  static constexpr int kBits = 4, kGroup = 16, kUnit = 80, kLeast = 82;
  static int Code(const std::byte* block, int i) { return TwoBits(block + 16, i); }
  static int Scale(const std::byte* block, int sub) { return Byte(block, sub) & 0xf; }
  static int Offset(const std::byte* block, int sub) { return -(Byte(block, sub) >> 4); }
};

struct Q3K {
  static constexpr std::string_view kName = "Q3_K";
  static constexpr int kBits = 4, kGroup = 16, kUnit = 108, kLeast = kNone;
  static int Code(const std::byte* block, int i) {
    const bool is_high = (Byte(block, i % 32) >> (i / 32) & 1) != 0;
    return TwoBits(block + 32, i) - (is_high ? 0 : 4);
  }
  static int Scale(const std::byte* block, int sub) { return SixBitScale(block + 96, sub); }
};

struct Q4K {
  static constexpr std::string_view kName = "Q4_K";
  static constexpr int kBits = 4, kGroup = 32, kUnit = 0, kLeast = 2;
  static int Code(const std::byte* block, int i) { return NibbleOfPairs(block + 16, i) - kMiddle; }
  static int Scale(const std::byte* block, int sub) { return SixBitPair(block + 4, sub).scale; }
  static int Offset(const std::byte* block, int sub) { return -SixBitPair(block + 4, sub).least; }
};

struct Q5K {
  static constexpr std::string_view kName = "Q5_K";
  static constexpr int kBits = 8, kGroup = 32, kUnit = 0, kLeast = 2;
  static int Code(const std::byte* block, int i) {
    const int fifth = Byte(block + 16, i % 32) >> (i / 32) & 1;
    return NibbleOfPairs(block + 48, i) | fifth << 4;
  }
  static int Scale(const std::byte* block, int sub) { return SixBitPair(block + 4, sub).scale; }
  static int Offset(const std::byte* block, int sub) { return -SixBitPair(block + 4, sub).least; }
};

struct Q6K {
  static constexpr std::string_view kName = "Q6_K";
  static constexpr int kBits = 8, kGroup = 16, kUnit = 208, kLeast = kNone;
  static int Code(const std::byte* block, int i) {
    const int low = Byte(block, i / 128 * 64 + i % 64) >> (i / 64 % 2 * 4) & 0xf;
    return (low | TwoBits(block + 128, i) << 4) - 32;
  }
  static int Scale(const std::byte* block, int sub) { return SignedByte(block + 192, sub); }
};

struct Iq4Xs {
  static constexpr std::string_view kName = "IQ4_XS";
  static constexpr int kBits = 8, kGroup = kSmall, kUnit = 0, kLeast = kNone;
  static int Code(const std::byte* block, int i) {
    const int nibble = Nibble(block + 8 + i / kSmall * kHalf, i % kSmall);
    return kLevels[static_cast<size_t>(nibble)];
  }
  static int Scale(const std::byte* block, int sub) {
    const int high = LoadAs<uint16_t>(block, 1);
    const int low = Byte(block, 4 + sub / 2) >> (sub % 2 * 4) & 0xf;
    return (low | (high >> 2 * sub & 3) << 4) - 32;
  }
};

template <typename Type>
constexpr bool kIsSmall = std::is_base_of_v<OneGroup, Type>;
template <typename Type>
constexpr int kElements = kIsSmall<Type> ? kSmall : kLarge;
template <typename Type>
constexpr int kGroups = kElements<Type> / Type::kGroup;
template <typename Type>
constexpr bool kHasOffsets = Type::kLeast != kNone;

template <typename Type>
float ScaleOf(const std::byte* block, int group) {
  return Half(block + Type::kUnit) * static_cast<float>(Type::Scale(block, group));
}

// Without what a middle adds.
template <typename Type>
float LeastOf(const std::byte* block, int group) {
  return Half(block + Type::kLeast) * static_cast<float>(Type::Offset(block, group));
}

template <typename Type, int kOwnMiddle>
void Decode(const std::byte* block, int8_t* codes, float* scales, float* offsets) {
  if (codes != nullptr)
    for (int i = 0; i < kElements<Type>; ++i) codes[i] = static_cast<int8_t>(Type::Code(block, i));
  if (scales != nullptr)
    for (int g = 0; g < kGroups<Type>; ++g) scales[g] = ScaleOf<Type>(block, g);
  if (offsets == nullptr) return;
  for (int g = 0; g < kGroups<Type>; ++g) {
    if constexpr (!kHasOffsets<Type>) {
      offsets[g] = 0;
    } else {
      offsets[g] = LeastOf<Type>(block, g);
      if constexpr (kOwnMiddle != 0) {
        const float middle = ScaleOf<Type>(block, g) * kOwnMiddle;  // exact
        offsets[g] += middle;
      }
    }
  }
}

template <typename Type>
void TakeUnits(const std::byte* block, std::byte* scales, std::byte* offsets) {
  if (scales != nullptr) {
    std::memcpy(scales, block + Type::kUnit, ScaleBlocks::kUnitBytes);
    if constexpr (!kIsSmall<Type>)
      for (int g = 0; g < kGroups<Type>; ++g)
        scales[ScaleBlocks::kUnitBytes + g] = static_cast<std::byte>(Type::Scale(block, g));
  }
  if constexpr (kHasOffsets<Type>) {
    if (offsets == nullptr) return;
    std::memcpy(offsets, block + Type::kLeast, ScaleBlocks::kUnitBytes);
    if constexpr (!kIsSmall<Type>)
      for (int g = 0; g < kGroups<Type>; ++g)
        offsets[ScaleBlocks::kUnitBytes + g] = static_cast<std::byte>(Type::Offset(block, g));
  }
}

template <typename Type, int kOwnMiddle = 0>
consteval BlockIntegers Integers() {
  const auto* type = std::ranges::find(gguf::kBlockTypes, Type::kName, &gguf::BlockType::name);
  return {.name = type->name,
          .num_elements = type->num_elements,
          .num_bytes = type->num_bytes,
          .bits = Type::kBits,
          .group_size = Type::kGroup,
          .has_offsets = kHasOffsets<Type>,
          .middle = kOwnMiddle,
          .decode = Decode<Type, kOwnMiddle>,
          .take_units = TakeUnits<Type>};
}

constexpr BlockIntegers kIntegers[] = {
    Integers<Q4_0>(), Integers<Q4_1, kMiddle>(), Integers<Q5_0>(),  Integers<Q5_1>(),
    Integers<Q8_0>(), Integers<Q2K>(),           Integers<Q3K>(),   Integers<Q4K, kMiddle>(),
    Integers<Q5K>(),  Integers<Q6K>(),           Integers<Iq4Nl>(), Integers<Iq4Xs>(),
};

}  // namespace

const BlockIntegers* FindBlockIntegers(std::string_view name) {
  const auto* found = std::ranges::find(kIntegers, name, &BlockIntegers::name);
  return found == std::end(kIntegers) ? nullptr : found;
}

}  // namespace inflight::artifact

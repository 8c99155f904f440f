// SPDX-License-Identifier: Apache-2.0
// Packed blocks against what gguf.quants.dequantize makes of them: files of
// tests/golden/gguf/make_blocks.py.
#include "artifact/block_codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "gguf/block_type.h"

namespace inflight::artifact {
namespace {

const std::filesystem::path kGolden = INFLIGHT_GGUF_BLOCKS;

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden))
    if (entry.path().extension() == ".bin") names.push_back(entry.path().stem().string());
  return names;
}

TEST(BlockCodec, EveryCodecHasGoldenBlocks) {
  const std::vector<std::string> names = Names();
  EXPECT_EQ(names.size(), 13U);
  size_t size = 0;
  for (const std::string& name : names) size += name.size() + 2;
  EXPECT_EQ(BlockCodecNames().size() + 2, size);
}

TEST(BlockCodec, EqualsThePackageBitForBit) {
  for (const std::string& name : Names()) {
    const BlockCodec* codec = FindBlockCodec(name);
    ASSERT_NE(codec, nullptr) << name;
    const auto blocks = ReadFile(kGolden / (name + ".bin"));
    const auto golden = ReadFile(kGolden / (name + ".f32"));
    ASSERT_TRUE(blocks.ok() && golden.ok()) << name;
    const size_t num_blocks = blocks->size() / static_cast<size_t>(codec->num_bytes);
    const size_t num_elements = num_blocks * static_cast<size_t>(codec->num_elements);
    ASSERT_EQ(golden->size(), num_elements * sizeof(float)) << name;
    std::vector<float> values(num_elements);
    DecodeBlocks(*codec, reinterpret_cast<const std::byte*>(blocks->data()), 0,
                 static_cast<int64_t>(num_elements), values.data());
    for (size_t i = 0; i < num_elements; ++i) {
      float expected = 0;
      std::memcpy(&expected, golden->data() + i * sizeof(float), sizeof(float));
      ASSERT_EQ(std::memcmp(&values[i], &expected, sizeof(float)), 0)
          << name << " element " << i << ": got " << values[i] << ", the package has " << expected;
    }
  }
}

TEST(BlockCodec, PartsOfBlocksAreThoseOfTheWhole) {
  const BlockCodec& codec = *FindBlockCodec("Q5_1");
  const auto blocks = ReadFile(kGolden / "Q5_1.bin");
  ASSERT_TRUE(blocks.ok());
  const auto* bytes = reinterpret_cast<const std::byte*>(blocks->data());
  std::vector<float> whole(96);
  DecodeBlocks(codec, bytes, 0, 96, whole.data());
  for (int64_t first = 0; first < 96; first += 7)
    for (int64_t n = 0; first + n <= 96; n += 5) {
      std::vector<float> part(static_cast<size_t>(n));
      DecodeBlocks(codec, bytes, first, n, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first << " " << n;
    }
}

TEST(BlockCodec, SizesAreThoseOfTheFormat) {
  int num_found = 0;
  for (uint32_t number = 0; number < 64; ++number) {
    const gguf::BlockType* type = gguf::FindBlockType(number);
    const BlockCodec* codec = type == nullptr ? nullptr : FindBlockCodec(type->name);
    if (codec == nullptr) continue;
    ++num_found;
    EXPECT_EQ(codec->num_elements, type->num_elements) << type->name;
    EXPECT_EQ(codec->num_bytes, type->num_bytes) << type->name;
  }
  EXPECT_EQ(num_found, 13);
}

}  // namespace
}  // namespace inflight::artifact

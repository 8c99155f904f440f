// SPDX-License-Identifier: Apache-2.0
// Codes, scales and offsets of packed blocks against what gguf.quants.dequantize makes of them:
// files of tests/golden/gguf/make_blocks.py.
#include "artifact/block_integers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "gguf/block_type.h"

namespace inflight::artifact {
namespace {

constexpr const char* kBlockNames[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",   "Q2_K",
                                       "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"};

// Of one element, the distance of what its code stands for from the package's number that is
// promised.
double BoundOf(const BlockIntegers& type, float scale, float offset) {
  return type.middle == 0 ? 0
                          : std::ldexp(std::abs(double{offset}) + 4 * std::abs(double{scale}), -22);
}

TEST(BlockIntegers, StandForThePackagesNumbers) {
  const std::filesystem::path golden_dir = INFLIGHT_GGUF_BLOCKS;
  for (const std::string name : kBlockNames) {
    const BlockIntegers* type = FindBlockIntegers(name);
    ASSERT_NE(type, nullptr) << name;
    const auto blocks = ReadFile(golden_dir / (name + ".bin"));
    const auto golden = ReadFile(golden_dir / (name + ".f32"));
    ASSERT_TRUE(blocks.ok() && golden.ok()) << name;
    const auto* bytes = reinterpret_cast<const std::byte*>(blocks->data());
    const size_t num_blocks = blocks->size() / static_cast<size_t>(type->num_bytes);
    const auto size = static_cast<size_t>(type->num_elements);
    int num_finite = 0;
    for (size_t b = 0; b < num_blocks; ++b) {
      std::vector<int8_t> codes(BlockIntegers::kMaxElements);
      std::vector<float> scales(BlockIntegers::kMaxGroups), offsets(scales.size());
      type->decode(bytes + b * static_cast<size_t>(type->num_bytes), codes.data(), scales.data(),
                   offsets.data());
      for (size_t i = 0; i < size; ++i) {
        const auto group = i / static_cast<size_t>(type->group_size);
        const auto code = static_cast<float>(codes[i]);
        ASSERT_TRUE(type->bits == 8 || (code >= -8 && code <= 7)) << name << " " << code;
        ASSERT_TRUE(type->has_offsets || offsets[group] == 0) << name;
        float expected = 0;
        std::memcpy(&expected, golden->data() + (b * size + i) * sizeof(float), sizeof(float));
        const float found = std::fma(code, scales[group], offsets[group]);
        if (!std::isfinite(expected)) continue;
        ++num_finite;
        ASSERT_LE(std::abs(double{found} - double{expected}),
                  BoundOf(*type, scales[group], offsets[group]))
            << name << " block " << b << " element " << i << ": got " << found
            << ", the package has " << expected;
      }
    }
    EXPECT_GT(num_finite, 100) << name;
  }
}

TEST(BlockIntegers, SizesAreThoseOfTheFormatAndPartsMayBeLeftOut) {
  for (const std::string name : kBlockNames) {
    const BlockIntegers& type = *FindBlockIntegers(name);
    EXPECT_EQ(type.num_elements % type.group_size, 0);
    EXPECT_LE(type.num_groups(), BlockIntegers::kMaxGroups);
    const std::vector<std::byte> zeros(static_cast<size_t>(type.num_bytes));
    type.decode(zeros.data(), nullptr, nullptr, nullptr);
  }
  EXPECT_EQ(FindBlockIntegers("MXFP4"), nullptr);
  EXPECT_EQ(FindBlockIntegers("F16"), nullptr);
}

}  // namespace
}  // namespace inflight::artifact

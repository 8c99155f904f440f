// SPDX-License-Identifier: Apache-2.0
// Scales and offsets in blocks (tensor/scale_blocks.h) stand for numbers that are computed here by
// hand: a weight that has them gives, on every table, the bits of one with these numbers as
// float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "integer_linear.h"

namespace inflight::ops {
namespace {

using testing::HasSubstr;

// unit and int8 of each block and group of one row.
struct RowBlocks {
  std::vector<uint16_t> units;  // float16
  std::vector<int8_t> codes;

  static RowBlocks Some(int64_t num_groups, const ScaleBlocks& blocks, Random& random) {
    RowBlocks row;
    for (int64_t i = 0; i < num_groups / blocks.groups; ++i)  // of either sign, below 2^-6
      row.units.push_back(static_cast<uint16_t>(random.Below(2) << 15 | random.Below(9 << 10)));
    for (int64_t i = 0; i < num_groups; ++i)
      row.codes.push_back(static_cast<int8_t>(random.Below(256) - 128));
    return row;
  }

  // binary16 of IEEE 754 by its fields, of numbers that are finite.
  static float Unit(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return static_cast<float>(bits >> 15 != 0 ? -magnitude : magnitude);
  }
  // Exact: 11 bits by 8.
  float Value(int64_t group, const ScaleBlocks& blocks) const {
    const float unit = Unit(units[static_cast<size_t>(group / blocks.groups)]);
    return blocks.groups == 1 ? unit : unit * codes[static_cast<size_t>(group)];
  }
  void AppendTo(const ScaleBlocks& blocks, std::vector<uint8_t>& bytes) const {
    for (size_t i = 0; i < units.size(); ++i) {
      bytes.push_back(static_cast<uint8_t>(units[i] & 0xff));
      bytes.push_back(static_cast<uint8_t>(units[i] >> 8));
      if (blocks.groups == 1) continue;
      for (int g = 0; g < blocks.groups; ++g)
        bytes.push_back(static_cast<uint8_t>(
            codes[i * static_cast<size_t>(blocks.groups) + static_cast<size_t>(g)]));
    }
  }
};

Tensor PackedBytes(const std::vector<uint8_t>& bytes, int64_t rows, WeightLayout layout) {
  const int64_t width = static_cast<int64_t>(bytes.size()) / rows;
  const Tensor plain(DType::kU8, {rows, width});
  std::ranges::copy(bytes, plain.view().as<uint8_t>());
  const WeightLayout packed_layout =
      layout == WeightLayout::kRowMajor ? layout : WeightLayout::kPanel64;
  Tensor packed(DType::kU8,
                {static_cast<int64_t>(WeightBytes(DType::kU8, packed_layout, rows, width))});
  PackWeight(plain.view(), DType::kU8, packed_layout, packed.view().data);
  return packed;
}

// The same weight twice: with float32 scales, and with blocks.
struct TwoForms {
  Tensor scale_bytes, offset_bytes;  // which making `plain` fills
  IntegerWeight plain;

  TwoForms(DType dtype, int64_t group_size, const ScaleBlocks& blocks, bool has_offsets,
           int64_t rows, int64_t columns, uint64_t seed, WeightLayout layout)
      : plain(Make(dtype, group_size, blocks, has_offsets, rows, columns, seed, layout)),
        blocks_(blocks),
        has_offsets_(has_offsets) {}

  Weight in_blocks() const {
    Weight weight = plain.weight;
    weight.scales = weight.offsets = nullptr;
    weight.blocks = blocks_;
    weight.scale_blocks = scale_bytes.view().as<const uint8_t>();
    if (has_offsets_) weight.offset_blocks = offset_bytes.view().as<const uint8_t>();
    return weight;
  }

 private:
  IntegerWeight Make(DType dtype, int64_t group_size, const ScaleBlocks& blocks, bool has_offsets,
                     int64_t rows, int64_t columns, uint64_t seed, WeightLayout layout) {
    Random random(seed);
    const int64_t num_groups = columns / group_size;
    const int range = IntegerWeight::RangeOf(dtype);
    std::vector<int8_t> elements(static_cast<size_t>(rows * columns));
    for (int8_t& e : elements) e = static_cast<int8_t>(random.Below(2 * range) - range);
    std::vector<float> scales, offsets;
    std::vector<uint8_t> of_scales, of_offsets;
    for (int64_t n = 0; n < rows; ++n) {
      const RowBlocks s = RowBlocks::Some(num_groups, blocks, random);
      const RowBlocks o = RowBlocks::Some(num_groups, blocks, random);
      s.AppendTo(blocks, of_scales);
      o.AppendTo(blocks, of_offsets);
      for (int64_t g = 0; g < num_groups; ++g) {
        const float scale = s.Value(g, blocks);
        scales.push_back(scale);
        // Rounded once: both terms are exact in double, and so is their sum.
        if (has_offsets)
          offsets.push_back(
              static_cast<float>(double{scale} * blocks.middle + double{o.Value(g, blocks)}));
      }
    }
    scale_bytes = PackedBytes(of_scales, rows, layout);
    offset_bytes = PackedBytes(of_offsets, rows, layout);
    return {{dtype, group_size, has_offsets},
            rows,
            columns,
            std::move(elements),
            std::move(scales),
            std::move(offsets),
            layout};
  }

  ScaleBlocks blocks_;
  bool has_offsets_;
};

class ScaleBlocksTest : public IntegerLinears {
 protected:
  static LinearParams Params(const Tensor& x, const Weight& w) {
    return {.x = {.values = x.view()}, .weight = w, .y = {}};
  }
};

struct BlockCase {
  int64_t group_size;
  ScaleBlocks blocks;
  int64_t columns;
};
// Those of GGUF's types, and what begins or ends a pass in another place.
const BlockCase kBlockCases[] = {
    {32, {1, 0}, 32},    {32, {1, 8}, 96},    {32, {8, 8}, 256},  {32, {8, 0}, 768},
    {16, {16, 0}, 1024}, {16, {16, 8}, 512},  {32, {1, 0}, 1632}, {16, {2, 3}, 96},
    {48, {3, 1}, 1008},  {128, {4, 8}, 2048},
};

// One row of two groups: unit 1/2 with 3 and -2 for scales 1.5 and -1; unit -1/4 with 1 and 8 and a
// middle of 8 for offsets 12 - 1/4 and -8 - 2. With codes (1, 2) and (3, -4), of which the others
// are 0, and x of (127, 0) and (0, 127), whose scale is 1:
//   127 * 1.5 + 127 * 11.75 and 127 * 4 + 127 * -10
TEST_P(ScaleBlocksTest, HandCheckedCase) {
  std::vector<float> x_values(32, 0);
  x_values[0] = x_values[17] = 127;
  std::vector<int8_t> elements(32, 0);
  elements[0] = 1;
  elements[1] = 2;
  elements[16] = 3;
  elements[17] = -4;
  const Tensor x = Tensor::Of(activations(), {1, 32}, x_values);
  const WeightLayout layout = CpuWeightLayout(weights());
  const IntegerWeight w({weights(), 16, false}, 1, 32, elements, {0, 0}, {}, layout);
  const Tensor scales = PackedBytes({0x00, 0x38, 3, 0xfe}, 1, layout);
  const Tensor offsets = PackedBytes({0x00, 0xb4, 1, 8}, 1, layout);
  Weight weight = w.weight;
  weight.scales = nullptr;
  weight.blocks = {.groups = 2, .middle = 8};
  weight.scale_blocks = scales.view().as<const uint8_t>();
  for (const OpTable& table : CpuOpTables(shape_)) {
    weight.offset_blocks = nullptr;
    EXPECT_EQ(Run(table, Params(x, weight)), std::vector<float>{127 * 5.5F}) << table.name;
    weight.offset_blocks = offsets.view().as<const uint8_t>();
    EXPECT_EQ(Run(table, Params(x, weight)), std::vector<float>{127 * 7.25F}) << table.name;
  }
}

TEST_P(ScaleBlocksTest, EveryTableGivesTheBitsOfFloatScales) {
  uint64_t seed = 1;
  for (const BlockCase& c : kBlockCases)
    for (const bool has_offsets : {false, true})
      for (const int64_t num_tokens : {1, 2, 3, 7, 40}) {
        const TwoForms w(weights(), c.group_size, c.blocks, has_offsets, 70, c.columns, ++seed,
                         CpuWeightLayout(weights()));
        const Tensor x = Tensor::Random(activations(), {num_tokens, c.columns}, seed);
        const auto want = Run(ReferenceTable(), Params(x, w.plain.weight));
        for (const OpTable& table : CpuOpTables(shape_))
          EXPECT_TRUE(SameBits(Run(table, Params(x, w.in_blocks())), want))
              << table.name << " " << c.group_size << " " << c.blocks.groups << " " << has_offsets
              << " " << num_tokens;
      }
}

// Of all layouts, and of the rows that a rank or an expert takes.
TEST_P(ScaleBlocksTest, RowsUnpackToTheSameNumbers) {
  for (const BlockCase& c : kBlockCases)
    for (const WeightLayout layout : {WeightLayout::kRowMajor, CpuWeightLayout(weights())}) {
      const TwoForms w(weights(), c.group_size, c.blocks, true, 130, c.columns, 9, layout);
      const int64_t first = 64;
      const Weight part = RowsOf(w.in_blocks(), first, 66);
      std::vector<float> want(static_cast<size_t>(c.columns)), whole = want, of_part = want;
      for (const int64_t row : {64, 65, 127, 128, 129}) {
        UnpackWeightRow(w.plain.weight, row, want.data());
        UnpackWeightRow(w.in_blocks(), row, whole.data());
        UnpackWeightRow(part, row - first, of_part.data());
        EXPECT_EQ(whole, want) << c.group_size << " " << row;
        EXPECT_EQ(of_part, want) << c.group_size << " " << row;
      }
    }
}

TEST_P(ScaleBlocksTest, WhatDoesNotFitIsNamed) {
  const TwoForms w(weights(), 32, {8, 8}, true, 70, 256, 3, CpuWeightLayout(weights()));
  const Tensor x = Tensor::Random(activations(), {1, 256}, 3);
  const Tensor y(DType::kF32, {1, 70});
  const Tensor scratch = ScratchOf(w.plain.weight, 1);
  for (const OpTable& table : CpuOpTables(shape_)) {
    LinearParams params = Params(x, w.in_blocks());
    params.y = y.view();
    params.scratch = scratch.view();
    const auto message = [&](const auto& change) {
      LinearParams changed = params;
      change(changed.weight);
      return table.linear(changed, stream_).message();
    };
    EXPECT_EQ(message([](Weight&) {}), "");
    const auto is_named = HasSubstr("weight.blocks: got blocks of ");
    EXPECT_THAT(message([](Weight& v) { v.blocks.groups = 3; }), is_named);
    EXPECT_THAT(message([](Weight& v) { v.blocks.groups = 32; }), is_named);
    EXPECT_THAT(message([](Weight& v) { v.blocks = {}; }), is_named);
    EXPECT_THAT(message([&](Weight& v) { v.scales = w.plain.weight.scales; }), is_named);
    EXPECT_THAT(message([&](Weight& v) { v.offsets = w.plain.weight.offsets; }), is_named);
    EXPECT_THAT(message([](Weight& v) { v.scale_blocks = nullptr; }), is_named);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, ScaleBlocksTest, IntegerLinears::All(), IntegerLinears::NameOf);

}  // namespace
}  // namespace inflight::ops

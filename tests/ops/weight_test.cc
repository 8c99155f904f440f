// SPDX-License-Identifier: Apache-2.0
#include "ops/weight.h"

#include <gtest/gtest.h>

#include "compare.h"
#include "integer_weight.h"
#include "ops/reference/weight_element.h"

namespace inflight::ops {
namespace {

TEST(WeightTest, LayoutNamesAreReadBack) {
  for (const WeightLayout layout :
       {WeightLayout::kRowMajor, WeightLayout::kPanel64, WeightLayout::kPanel64Vnni2,
        WeightLayout::kPanel64Vnni4, WeightLayout::kPanel64Nibbles})
    EXPECT_EQ(WeightLayoutFromName(WeightLayoutName(layout)), layout);
  EXPECT_EQ(WeightLayoutFromName("panel65"), std::nullopt);
}

TEST(WeightTest, BytesCountThePadding) {
  EXPECT_EQ(WeightBytes(DType::kF32, WeightLayout::kRowMajor, 65, 3), 65U * 3 * 4);
  EXPECT_EQ(WeightBytes(DType::kF32, WeightLayout::kPanel64, 65, 3), 128U * 3 * 4);
  EXPECT_EQ(WeightBytes(DType::kF16, WeightLayout::kPanel64, 64, 3), 64U * 3 * 2);
  EXPECT_EQ(WeightBytes(DType::kBF16, WeightLayout::kPanel64Vnni2, 1, 3), 64U * 4 * 2);
  EXPECT_EQ(WeightBytes(DType::kBF16, WeightLayout::kPanel64Vnni2, 0, 3), 0U);
}

// W[n][k] = n + k / 4 stands where the layout says, and zeros fill the tile.
TEST(WeightTest, HandCheckedPlaces) {
  Tensor w(DType::kF32, {66, 3});
  for (int n = 0; n < 66; ++n)
    for (int k = 0; k < 3; ++k) w.Set(n * 3 + k, static_cast<float>(n) + static_cast<float>(k) / 4);
  const PackedWeight panel(DType::kF32, WeightLayout::kPanel64, w);
  const auto* f32 = static_cast<const float*>(panel.weight().data);
  EXPECT_EQ(f32[0], 0);                         // [0][0]
  EXPECT_EQ(f32[63], 63);                       // [63][0]
  EXPECT_EQ(f32[2 * 64 + 5], 5.5F);             // [5][2]
  EXPECT_EQ(f32[3 * 64 + 1 * 64 + 1], 65.25F);  // second panel: [65][1]
  EXPECT_EQ(f32[3 * 64 + 2], 0);                // padding: row 66

  const PackedWeight pairs(DType::kBF16, WeightLayout::kPanel64Vnni2, w);
  const auto* bf16 = static_cast<const BFloat16*>(pairs.weight().data);
  EXPECT_EQ(bf16[0].ToFloat(), 0);                    // [0][0]
  EXPECT_EQ(bf16[1].ToFloat(), 0.25F);                // [0][1]
  EXPECT_EQ(bf16[2 * 17].ToFloat(), 17);              // [17][0]: second group of sixteen
  EXPECT_EQ(bf16[128 + 2 * 17].ToFloat(), 17.5F);     // [17][2]
  EXPECT_EQ(bf16[128 + 2 * 17 + 1].ToFloat(), 0);     // padding: k 3
  EXPECT_EQ(bf16[256 + 2 * 1 + 1].ToFloat(), 65.0F);  // second panel: [65][1] = 65.25 rounded
}

// w[n][k] = n - k: quads of k side by side, with the sign bit turned over, and 128 (a weight of
// zero) as padding.
TEST(WeightTest, HandCheckedPlacesOfInt8) {
  std::vector<int8_t> w(66 * 6);
  for (int n = 0; n < 66; ++n)
    for (int k = 0; k < 6; ++k) w[static_cast<size_t>(n * 6 + k)] = static_cast<int8_t>(n - k);
  ASSERT_EQ(WeightBytes(DType::kI8, WeightLayout::kPanel64Vnni4, 66, 6), 2U * 64 * 8);
  alignas(64) uint8_t packed[2 * 64 * 8];
  PackWeight({w.data(), DType::kI8, {66, 6}}, DType::kI8, WeightLayout::kPanel64Vnni4, packed);
  EXPECT_EQ(packed[0], 128);                     // [0][0] = 0
  EXPECT_EQ(packed[3], 125);                     // [0][3] = -3
  EXPECT_EQ(packed[4 * 63 + 1], 128 + 62);       // [63][1]
  EXPECT_EQ(packed[256 + 4 * 2 + 1], 128 - 3);   // [2][5]
  EXPECT_EQ(packed[256 + 4 * 2 + 2], 128);       // padding: k 6
  EXPECT_EQ(packed[512 + 4 * 1 + 2], 128 + 63);  // second panel: [65][2]
  EXPECT_EQ(packed[512 + 4 * 2], 128);           // padding: row 66

  const std::vector<float> scales(66, 0.5F);
  const Weight weight = {.data = packed,
                         .dtype = DType::kI8,
                         .layout = WeightLayout::kPanel64Vnni4,
                         .out_features = 66,
                         .in_features = 6,
                         .scales = scales.data()};
  for (int n = 0; n < 66; ++n) {
    float values[6];
    UnpackWeightRow(weight, n, values);
    for (int k = 0; k < 6; ++k) {
      EXPECT_EQ(reference::IntegerAt(weight, n, k), n - k);
      EXPECT_EQ(values[k], static_cast<float>(n - k) / 2);
    }
  }
}

// W[n][k] = (n + k) mod 16 - 8 as int4: a byte holds k and k + 4 of a group of eight.
TEST(WeightTest, HandCheckedPlacesOfInt4) {
  constexpr int kRows = 66;
  constexpr int kColumns = 10;
  const auto element = [](int n, int k) { return (n + k) % 16 - 8; };
  std::vector<uint8_t> rows;
  for (int n = 0; n < kRows; ++n)
    for (int k = 0; k < kColumns; k += 2)
      rows.push_back(static_cast<uint8_t>((element(n, k) & 0xf) | (element(n, k + 1) & 0xf) << 4));
  ASSERT_EQ(WeightBytes(DType::kI4, WeightLayout::kRowMajor, kRows, kColumns), rows.size());
  ASSERT_EQ(WeightBytes(DType::kI4, WeightLayout::kPanel64Nibbles, kRows, kColumns), 2U * 64 * 8);
  alignas(64) uint8_t packed[2 * 64 * 8];
  PackWeight({rows.data(), DType::kI4, {kRows, kColumns}}, DType::kI4,
             WeightLayout::kPanel64Nibbles, packed);
  EXPECT_EQ(packed[0], 0x40);            // [0][0] = 0 - 8, [0][4] = 4 - 8
  EXPECT_EQ(packed[3], 0x73);            // [0][3], [0][7]
  EXPECT_EQ(packed[4 * 13 + 1], 0x2e);   // [13][1], [13][5] = 18 mod 16 - 8
  EXPECT_EQ(packed[256 + 1], 0x89);      // [0][9], padding: 0 at k 13
  EXPECT_EQ(packed[256 + 2], 0x88);      // padding
  EXPECT_EQ(packed[512 + 4 * 1], 0x51);  // second panel: [65][0], [65][4]
  EXPECT_EQ(packed[512 + 4 * 2], 0x88);  // padding: row 66

  const std::vector<float> scales(kRows, 0.5F);
  for (const void* data : std::initializer_list<const void*>{rows.data(), packed}) {
    const Weight weight = {
        .data = data,
        .dtype = DType::kI4,
        .layout = data == packed ? WeightLayout::kPanel64Nibbles : WeightLayout::kRowMajor,
        .out_features = kRows,
        .in_features = kColumns,
        .scales = scales.data()};
    for (int n = 0; n < kRows; ++n) {
      float values[kColumns];
      UnpackWeightRow(weight, n, values);
      for (int k = 0; k < kColumns; ++k) {
        EXPECT_EQ(reference::IntegerAt(weight, n, k), element(n, k));
        EXPECT_EQ(values[k], static_cast<float>(element(n, k)) / 2);
      }
    }
  }
}

// Two groups: the scale of row n's group g is n + g / 2, and padded rows have zeros.
TEST(WeightTest, HandCheckedPlacesOfScales) {
  EXPECT_EQ(NumScales(WeightLayout::kRowMajor, 66, 32, 0), 66);
  EXPECT_EQ(NumScales(WeightLayout::kPanel64Vnni4, 66, 32, 0), 66);
  EXPECT_EQ(NumScales(WeightLayout::kRowMajor, 66, 32, 16), 66 * 2);
  EXPECT_EQ(NumScales(WeightLayout::kPanel64Nibbles, 66, 32, 16), 128 * 2);
  std::vector<float> rows;
  for (int n = 0; n < 66; ++n)
    for (int g = 0; g < 2; ++g) rows.push_back(static_cast<float>(n) + static_cast<float>(g) / 2);
  std::vector<float> plain(66 * 2, -1);
  PackScales(rows.data(), 66, 2, WeightLayout::kRowMajor, plain.data());
  EXPECT_EQ(plain, rows);
  std::vector<float> packed(128 * 2, -1);
  PackScales(rows.data(), 66, 2, WeightLayout::kPanel64Vnni4, packed.data());
  EXPECT_EQ(packed[0], 0);                 // [0][0]
  EXPECT_EQ(packed[63], 63);               // [63][0]
  EXPECT_EQ(packed[64 + 5], 5.5F);         // [5][1]
  EXPECT_EQ(packed[128 + 1], 65);          // second panel: [65][0]
  EXPECT_EQ(packed[128 + 64 + 1], 65.5F);  // [65][1]
  EXPECT_EQ(packed[128 + 2], 0);           // padding: row 66
  EXPECT_EQ(packed[128 + 64 + 63], 0);     // padding
  Weight weight = {.layout = WeightLayout::kPanel64Vnni4, .out_features = 66, .in_features = 32};
  EXPECT_EQ(ScaleIndex(weight, 65, 31), 65);
  weight.group_size = 16;
  EXPECT_EQ(ScaleIndex(weight, 0, 15), 0);
  EXPECT_EQ(ScaleIndex(weight, 5, 16), 64 + 5);
  EXPECT_EQ(ScaleIndex(weight, 65, 31), 128 + 64 + 1);
  weight.layout = WeightLayout::kRowMajor;
  EXPECT_EQ(ScaleIndex(weight, 5, 15), 10);
  EXPECT_EQ(ScaleIndex(weight, 65, 31), 131);
}

// Elements, scales and offsets are small and scales powers of two, so that values are exact.
TEST(WeightTest, RowsOfGroupsAreUnpackedWithTheirScalesAndOffsets) {
  constexpr int64_t kRows = 130;
  constexpr int64_t kColumns = 96;
  for (const DType dtype : {DType::kI8, DType::kI4}) {
    for (const int64_t size : {16, 32, 48, 96}) {
      for (const WeightLayout layout : {WeightLayout::kRowMajor, CpuWeightLayout(dtype)}) {
        const IntegerForm form = {dtype, size, /*has_offsets=*/true};
        std::vector<int8_t> elements(kRows * kColumns);
        for (size_t i = 0; i < elements.size(); ++i)
          elements[i] = static_cast<int8_t>(static_cast<int>(i * 7 % 16) - 8);
        std::vector<float> scales, offsets;
        for (int64_t i = 0; i < kRows * kColumns / size; ++i) {
          scales.push_back(i % 3 == 0 ? 0.5F : 2.0F);
          offsets.push_back(static_cast<float>(i % 11) - 5);
        }
        const IntegerWeight packed(form, kRows, kColumns, elements, scales, offsets, layout);
        for (const int64_t first : {0, 64}) {
          const Weight rows = RowsOf(packed.weight, first, kRows - first);
          for (int64_t n = 0; n < rows.out_features; ++n) {
            std::vector<float> values(kColumns);
            UnpackWeightRow(rows, n, values.data());
            for (int64_t k = 0; k < kColumns; ++k) {
              const auto at = static_cast<size_t>((first + n) * kColumns + k);
              const auto group = static_cast<size_t>((first + n) * (kColumns / size) + k / size);
              const float want = static_cast<float>(elements[at]) * scales[group] + offsets[group];
              ASSERT_EQ(values[static_cast<size_t>(k)], want)
                  << DTypeName(dtype) << " " << size << " " << n << " " << k;
              ASSERT_EQ(reference::ElementAt(rows, n, k), want);
            }
          }
        }
      }
    }
  }
}

TEST(WeightTest, UnpackingInvertsPackingFromEveryDTypeToEveryLayout) {
  const auto device = Device::Cpu(3);
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType to : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const WeightLayout layout : {WeightLayout::kRowMajor, CpuWeightLayout(to)}) {
        for (const auto& [rows, columns] : {std::pair{1, 1}, {63, 31}, {64, 32}, {130, 67}}) {
          const Tensor w = Tensor::Random(from, {rows, columns}, 17);
          Tensor rounded(to, {rows, columns});
          for (int i = 0; i < rows * columns; ++i) rounded.Set(i, w.Get(i));
          const PackedWeight packed(to, layout, w, &device->cpu_pool());
          std::vector<float> got(static_cast<size_t>(rows) * static_cast<size_t>(columns));
          for (int n = 0; n < rows; ++n)
            UnpackWeightRow(packed.weight(), n, got.data() + n * columns);
          EXPECT_TRUE(SameBits(got, rounded.ToFloats()))
              << DTypeName(from) << " to " << DTypeName(to) << " " << WeightLayoutName(layout)
              << " " << rows << "x" << columns;
          std::vector<float> twice = got;
          for (int n = 0; n < rows; ++n)
            AddWeightRow(packed.weight(), n, twice.data() + n * columns);
          for (float& v : got) v *= 2;
          EXPECT_TRUE(SameBits(twice, got));
        }
      }
    }
  }
}

}  // namespace
}  // namespace inflight::ops

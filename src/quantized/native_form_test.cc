// SPDX-License-Identifier: Apache-2.0
// Forms of stored weights by hand. tests/golden/quantized_golden_test.cc has whole models,
// tests/tools/test_gguf.py has blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "artifact/block_codec.h"
#include "quantized/block_form.h"
#include "quantized/method.h"
#include "quantized/wider_form.h"
#include "tensor/element.h"

namespace inflight::quantized {
namespace {

using artifact::StoredTensor;
using nlohmann::json;
using testing::Each;
using testing::ElementsAre;

template <typename T>
StoredTensor TensorOf(const std::string& name, DType dtype, const Shape& shape,
                      const std::vector<T>& values) {
  return {.name = "m." + name,
          .dtype = dtype,
          .shape = shape,
          .data = std::as_bytes(std::span(values))};
}

std::vector<float> FloatsOf(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
  tensor.reader->Read({0, tensor.shape[0], 0, tensor.shape[1]}, values.data());
  return values;
}

std::vector<int> CodesOf(const StoredTensor& codes, int64_t column, int64_t n) {
  std::vector<std::byte> bytes(BytesOf(codes.dtype, codes.shape[0] * n));
  codes.reader->Read({0, codes.shape[0], column, n}, bytes.data());
  std::vector<int> values;
  for (int64_t i = 0; i < codes.shape[0] * n; ++i)
    values.push_back(codes.dtype == DType::kI4 ? LoadInt4(bytes.data(), i)
                                               : LoadAs<int8_t>(bytes.data(), i));
  return values;
}

std::optional<NativeForm> FormOf(const json& config, std::vector<StoredTensor> tensors) {
  artifact::TensorSet set = artifact::TensorSet::Of({}, std::move(tensors));
  const auto method = ReadMethod(config, "q");
  EXPECT_TRUE(method.ok()) << method.status().ToString();
  const auto unpacked = UnpackAll(**method, set);
  EXPECT_TRUE(unpacked.ok()) << unpacked.status().ToString();
  const auto found = unpacked->native.find("m.weight");
  return found == unpacked->native.end() ? std::nullopt : std::optional(found->second);
}

// 16 inputs a group, 8 outputs, codes 0 to 7 in a word: column j has code AWQ's order makes of it.
TEST(NativeFormTest, AwqInGroups) {
  const json config = {{"quant_method", "awq"}, {"group_size", 16}};
  const std::vector<uint32_t> words(32, 0x76543210), zeros = {0x88888888, 0x99999999};
  std::vector<float> scales(16, 2);
  scales[9] = 0.5F;  // of group 1, output 1
  const auto form = FormOf(config, {TensorOf("qweight", DType::kI32, {32, 1}, words),
                                    TensorOf("qzeros", DType::kI32, {2, 1}, zeros),
                                    TensorOf("scales", DType::kF32, {2, 8}, scales)});
  ASSERT_TRUE(form);
  EXPECT_EQ(form->group_size, 16);
  EXPECT_EQ(form->codes.dtype, DType::kI4);
  EXPECT_THAT(CodesOf(form->codes, 6, 2),
              ElementsAre(-8, -8, -4, -4, -7, -7, -3, -3, -6, -6, -2, -2, -5, -5, -1, -1));
  EXPECT_EQ(FloatsOf(form->scales)[3], 0.5F);  // [8, 2]
  // (8 - z) s: 0 of the first group, whose zero points are 8.
  ASSERT_TRUE(form->offsets);
  EXPECT_THAT(FloatsOf(*form->offsets),
              ElementsAre(0, -2, 0, -0.5F, 0, -2, 0, -2, 0, -2, 0, -2, 0, -2, 0, -2));
  // Where all zero points are the middle there are no offsets.
  const std::vector<uint32_t> middle(2, 0x88888888);
  const auto symmetric = FormOf(config, {TensorOf("qweight", DType::kI32, {32, 1}, words),
                                         TensorOf("qzeros", DType::kI32, {2, 1}, middle),
                                         TensorOf("scales", DType::kF32, {2, 8}, scales)});
  ASSERT_TRUE(symmetric);
  EXPECT_FALSE(symmetric->offsets);
}

TEST(NativeFormTest, GptqWithItsColumnsInTheOrderOfTheirGroups) {
  const json config = {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 16}};
  const std::vector<uint32_t> words(32, 0xff800100), zeros(2, 0x7f7f7f7e);
  const std::vector<float> scales(8, 0.25F);
  std::vector<uint32_t> order(32);
  for (uint32_t k = 0; k < 32; ++k) order[k] = k / 16;
  const auto form_of = [&](const std::vector<uint32_t>& groups) {
    return FormOf(config, {TensorOf("qweight", DType::kI32, {8, 4}, words),
                           TensorOf("qzeros", DType::kI32, {2, 1}, zeros),
                           TensorOf("scales", DType::kF32, {2, 4}, scales),
                           TensorOf("g_idx", DType::kI32, {32}, groups)});
  };
  const auto form = form_of(order);
  ASSERT_TRUE(form);
  EXPECT_EQ(form->codes.dtype, DType::kI8);
  EXPECT_THAT(
      std::vector(CodesOf(form->codes, 0, 4)),
      ElementsAre(-128, -127, 0, 127, -128, -127, 0, 127, -128, -127, 0, 127, -128, -127, 0, 127));
  // z is one more than what is stored: 127 of the first output, 128 of the others.
  EXPECT_THAT(FloatsOf(*form->offsets), ElementsAre(0.25F, 0.25F, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(form->order, nullptr);
  // Column 0 is of the second group, 31 of the first: those of a group lie side by side.
  std::swap(order[0], order[31]);
  const auto ordered = form_of(order);
  ASSERT_TRUE(ordered && ordered->order != nullptr);
  EXPECT_THAT(*ordered->order,
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 31, 0, 16, 17, 18, 19,
                          20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30));
  EXPECT_THAT(CodesOf(ordered->codes, 14, 4),
              ElementsAre(127, 127, -128, -128, 127, 127, -128, -128, 127, 127, -128, -128, 127,
                          127, -128, -128));
  EXPECT_EQ(FloatsOf(*ordered->offsets), FloatsOf(*form->offsets));
  order[0] = 0;  // 17 columns in one group and 15 in the other
  EXPECT_FALSE(form_of(order));
}

TEST(NativeFormTest, GroupsOfWholeStepsAlone) {
  const json config = {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 8}};
  const std::vector<uint32_t> words(16), zeros(2);
  const std::vector<float> scales(8, 1);
  EXPECT_FALSE(FormOf(config, {TensorOf("qweight", DType::kI32, {4, 4}, words),
                               TensorOf("qzeros", DType::kI32, {2, 1}, zeros),
                               TensorOf("scales", DType::kF32, {2, 4}, scales)}));
}

TEST(WiderFormTest, CommonKindsHoldBoth) {
  const FormKind int4 = {DType::kI4, 32, true};
  const FormKind int8 = {DType::kI8, 16, false};
  EXPECT_EQ(CommonKind(int4, int8, 64), (FormKind{DType::kI8, 16, true}));
  EXPECT_EQ(CommonKind(int4, {DType::kI4, 0, false}, 64), int4);
  EXPECT_EQ(CommonKind({DType::kI4, 48, false}, {DType::kI4, 32, false}, 96),
            (FormKind{DType::kI4, 16, false}));
  EXPECT_EQ(CommonKind({DType::kI4, 0, false}, {DType::kI8, 0, false}, 64),
            (FormKind{DType::kI8, 0, false}));
  EXPECT_EQ(CommonKind(int4, {DType::kF8E4M3, 0, false}, 64), std::nullopt);
  const FormKind float4 = {DType::kF4E2M1, 32, false};
  EXPECT_EQ(CommonKind(float4, float4, 64), float4);
  EXPECT_EQ(CommonKind(float4, {DType::kI4, 32, false}, 64), std::nullopt);
}

// A block of MXFP4: an exponent, and bytes whose low halves are the first sixteen codes.
TEST(NativeFormTest, Mxfp4OfBlocks) {
  std::vector<uint8_t> block(17);
  block[0] = 129;
  block[1] = 0x21;
  block[2] = 0x43;
  block[16] = 0xf7;
  const StoredTensor blocks = {.name = "b",
                               .dtype = DType::kF32,
                               .shape = {1, 32},
                               .data = std::as_bytes(std::span(block)),
                               .codec = artifact::FindBlockCodec("MXFP4")};
  const auto form = FormOfBlocks(blocks);
  ASSERT_TRUE(form);
  EXPECT_EQ(KindOf(*form), (FormKind{DType::kF4E2M1, 32, false}));
  std::vector<uint8_t> pairs(16);
  form->codes.reader->Read({0, 1, 0, 32}, pairs.data());
  EXPECT_THAT(pairs, ElementsAre(0x31, 0, 0, 0, 0, 0, 0, 0x70, 0x42, 0, 0, 0, 0, 0, 0, 0xf0));
  form->codes.reader->Read({0, 1, 14, 4}, pairs.data());
  EXPECT_THAT(std::vector(pairs.begin(), pairs.begin() + 2), ElementsAre(0x70, 0x42));
  uint8_t exponent = 0;
  form->scales.reader->Read({0, 1, 0, 1}, &exponent);
  EXPECT_EQ(exponent, 129);
}

// A block of Q6_K beside one of zeros: a float16 of both bytes, and sixteen int8.
TEST(NativeFormTest, ScalesOfBlocksAsTheyAreStored) {
  std::vector<uint8_t> two(420);
  for (uint8_t i = 0; i < 16; ++i) two[192 + i] = static_cast<uint8_t>(240 + i);
  two[208] = 0x34;
  two[209] = 0x12;
  const StoredTensor blocks = {.name = "b",
                               .dtype = DType::kF32,
                               .shape = {1, 512},
                               .data = std::as_bytes(std::span(two)),
                               .codec = artifact::FindBlockCodec("Q6_K")};
  const auto form = FormOfBlocks(blocks);
  ASSERT_TRUE(form && form->scale_blocks);
  EXPECT_FALSE(form->offset_blocks);
  EXPECT_EQ(form->blocks, (ScaleBlocks{.groups = 16}));
  EXPECT_EQ(form->scale_blocks->shape, (Shape{1, 36}));
  std::vector<uint8_t> bytes(36);
  form->scale_blocks->reader->Read({0, 1, 0, 36}, bytes.data());
  std::vector<uint8_t> want = {0x34, 0x12};
  for (uint8_t i = 0; i < 16; ++i) want.push_back(static_cast<uint8_t>(240 + i));
  want.resize(36);
  EXPECT_EQ(bytes, want);
  form->scale_blocks->reader->Read({0, 1, 16, 3}, bytes.data());  // across the blocks
  EXPECT_THAT(std::vector(bytes.begin(), bytes.begin() + 3), ElementsAre(254, 255, 0));
}

// A block's scale is that of a group of each of its rows, those of the last block, too, which is
// cut off: 130 rows of two groups.
TEST(NativeFormTest, Fp8OfBlocks) {
  const json config = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const std::vector<uint8_t> codes(130 * 256, 0x38);
  const std::vector<float> scales = {2, 3, 5, 7};
  const auto form = FormOf(config, {TensorOf("weight", DType::kF8E4M3, {130, 256}, codes),
                                    TensorOf("weight_scale_inv", DType::kF32, {2, 2}, scales)});
  ASSERT_TRUE(form);
  EXPECT_EQ(form->group_size, 128);
  EXPECT_EQ(form->codes.dtype, DType::kF8E4M3);
  EXPECT_EQ(form->codes.data.data(), std::as_bytes(std::span(codes)).data());
  EXPECT_EQ(form->scales.shape, (Shape{130, 2}));
  std::vector<float> want;
  for (int row = 0; row < 130; ++row)
    for (int group = 0; group < 2; ++group)
      want.push_back(scales[static_cast<size_t>(row / 128 * 2 + group)]);
  EXPECT_EQ(FloatsOf(form->scales), want);
  // Rows of a block and a part of one have none.
  const std::vector<uint8_t> narrow(2 * 160, 0x38);
  const std::vector<float> two = {2, 3};
  EXPECT_FALSE(FormOf(config, {TensorOf("weight", DType::kF8E4M3, {2, 160}, narrow),
                               TensorOf("weight_scale_inv", DType::kF32, {1, 2}, two)}));
}

// A block of Q4_0: 32 codes around 0 and a scale.
TEST(WiderFormTest, StandsForTheSameNumbers) {
  std::vector<uint8_t> block(18, 0x9f);  // low nibbles 7, high ones 1
  block[0] = 0x00;
  block[1] = 0x38;  // 0.5 of float16
  const StoredTensor blocks = {.name = "b",
                               .dtype = DType::kF32,
                               .shape = {1, 32},
                               .data = std::as_bytes(std::span(block)),
                               .codec = artifact::FindBlockCodec("Q4_0")};
  const auto form = FormOfBlocks(blocks);
  ASSERT_TRUE(form);
  EXPECT_EQ(KindOf(*form), (FormKind{DType::kI4, 32, false, {.groups = 1}}));
  EXPECT_EQ(InKind(*form, KindOf(*form)).scale_blocks->shape, (Shape{1, 2}));
  const NativeForm wider = InKind(*form, {DType::kI8, 16, true});
  EXPECT_FALSE(wider.scale_blocks);
  EXPECT_EQ(KindOf(wider), (FormKind{DType::kI8, 16, true}));
  EXPECT_THAT(CodesOf(wider.codes, 15, 3), ElementsAre(7, 1, 1));
  EXPECT_THAT(FloatsOf(wider.scales), ElementsAre(0.5F, 0.5F));
  EXPECT_THAT(FloatsOf(*wider.offsets), Each(0));
  StoredTensor uneven = blocks;
  uneven.shape = {1, 24};
  EXPECT_FALSE(FormOfBlocks(uneven));
}

}  // namespace
}  // namespace inflight::quantized

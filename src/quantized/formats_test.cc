// SPDX-License-Identifier: Apache-2.0
// Weights by hand, and what each format refuses. tests/golden/quantized_golden_test.cc has whole
// models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>

#include "quantized/method.h"

namespace inflight::quantized {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// The tensors of one module, "m".
class Files {
 public:
  template <typename T>
  Files& Add(const std::string& name, DType dtype, const Shape& shape, std::vector<T> values) {
    values.resize(static_cast<size_t>(shape.num_elements()));
    std::vector<std::byte>& bytes = data_.emplace_back(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    Remove(name);
    tensors_.push_back({.name = "m." + name, .dtype = dtype, .shape = shape, .data = bytes});
    return *this;
  }
  Files& Words(const std::string& name, const Shape& shape, std::vector<uint32_t> values = {}) {
    return Add(name, DType::kI32, shape, std::move(values));
  }
  Files& Floats(const std::string& name, const Shape& shape, std::vector<float> values = {}) {
    return Add(name, DType::kF32, shape, std::move(values));
  }
  Files& Remove(const std::string& name) {
    std::erase_if(tensors_, [&](const auto& tensor) { return tensor.name == "m." + name; });
    return *this;
  }

  Result<artifact::TensorSet> Unpack(const json& config) const {
    ASSIGN_OR_RETURN(const auto method, ReadMethod(config, "q"));
    artifact::TensorSet set = artifact::TensorSet::Of({}, tensors_);
    RETURN_IF_ERROR(UnpackAll(*method, set).status());
    return set;
  }
  std::vector<float> Weight(const json& config) const {
    const auto set = Unpack(config);
    EXPECT_EQ(set.status().ToString(), "OK");
    if (!set.ok()) return {};
    EXPECT_EQ(set->tensors().size(), 1U);
    const artifact::StoredTensor& tensor = *set->Find("m.weight");
    std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
    tensor.reader->Read({0, tensor.shape[0], 0, tensor.shape[1]}, values.data());
    return values;
  }
  std::string Error(const json& config) const { return Unpack(config).status().message(); }

 private:
  std::deque<std::vector<std::byte>> data_;
  std::vector<artifact::StoredTensor> tensors_;
};

json With(json config, const std::string& field, json value) {
  config[field] = std::move(value);
  return config;
}

const json kAwq = {{"quant_method", "awq"}, {"group_size", 2}};
const json kGptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 4}};
const json kFp8 = {{"quant_method", "fp8"}, {"weight_block_size", {2, 2}}};

json Compressed(const std::string& format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}
json Packed() {
  return Compressed("pack-quantized", {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 4}});
}

Files AwqFiles() {
  Files files;
  files.Words("qweight", {2, 1}, {0x76543210, 0xffffffff}).Words("qzeros", {1, 1}, {0x11111111});
  files.Floats("scales", {1, 8}, {1, 1, 1, 1, 2, 2, 2, 2});
  return files;
}
Files GptqFiles() {
  Files files;
  files.Words("qweight", {1, 8}, {0x76543210}).Words("qzeros", {2, 1}, {0, 2});
  files.Floats("scales", {2, 8}, {1, 0, 0, 0, 0, 0, 0, 0, 0.5F});
  return files;
}
Files PackedFiles() {
  Files files;
  files.Words("weight_packed", {1, 1}, {0x76543210}).Floats("weight_scale", {1, 2}, {1, 2});
  files.Add<int64_t>("weight_shape", DType::kI64, {2}, {1, 8});
  return files;
}
Files Fp8Files() {  // 1, 2, 448 and -1 of e4m3
  Files files;
  files.Add<uint8_t>("weight", DType::kF8E4M3, {1, 4}, {0x38, 0x40, 0x7e, 0xb8});
  files.Floats("weight_scale_inv", {1, 2}, {2, 0.5F});
  return files;
}

// Bytes hold elements 2i and 2i + 1 of 32; the second block of 32 is of another scale.
TEST(QuantizedFormatsTest, Mxfp4ByHand) {
  const json config = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"m.*.router"}}};
  std::vector<uint8_t> blocks(32);
  blocks[0] = 0x21;   // 0.5, 1
  blocks[1] = 0xf7;   // 6, -6
  blocks[2] = 0x08;   // -0, 0
  blocks[16] = 0x9a;  // -1, -0.5
  Files files;
  files.Add<uint8_t>("x_blocks", DType::kU8, {1, 1, 2, 16}, blocks);
  files.Add<uint8_t>("x_scales", DType::kU8, {1, 1, 2}, {128, 0});
  files.Floats("x_bias", {1, 1});
  const auto set = files.Unpack(config);
  ASSERT_EQ(set.status(), Status::Ok());
  EXPECT_EQ(set->tensors().size(), 2U);
  const artifact::StoredTensor* const tensor = set->Find("m.x.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (Shape{1, 1, 64}));
  std::vector<float> values(64);
  tensor->reader->Read({0, 1, 0, 64}, values.data());
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(values[2], 12);
  EXPECT_EQ(values[3], -12);
  EXPECT_TRUE(std::signbit(values[4]) && values[4] == 0);
  EXPECT_FALSE(std::signbit(values[5]));
  EXPECT_EQ(values[32], -0x1p-127F);
  EXPECT_EQ(values[33], -0x1p-128F);
  tensor->reader->Read({0, 1, 33, 1}, values.data());
  EXPECT_EQ(values[0], -0x1p-128F);

  EXPECT_THAT(Files(files).Remove("x_scales").Error(config), HasSubstr("m.x_scales: is missing"));
  EXPECT_THAT(Files(files).Add<uint8_t>("x_scales", DType::kU8, {1, 2, 1}, {}).Error(config),
              HasSubstr("m.x_scales: expected shape [1, 1, 2], found [1, 2, 1]"));
  EXPECT_THAT(Files(files).Add<uint8_t>("x_blocks", DType::kU8, {1, 1, 32}, {}).Error(config),
              HasSubstr("m.x_blocks: got uint8 [1, 1, 32], uint8 [num_experts, out, in / 32, 16]"));
  EXPECT_THAT(files.Error(With(config, "modules_to_not_convert", {"m.x"})),
              HasSubstr("'m.x': is packed, and modules_to_not_convert has m.x"));
}

// Nibble i of a word is column {0, 2, 4, 6, 1, 3, 5, 7}[i].
TEST(QuantizedFormatsTest, AwqByHand) {
  EXPECT_THAT(AwqFiles().Weight(kAwq),
              ElementsAre(-1, 14, 3, 14, 0, 14, 4, 14, 2, 28, 10, 28, 4, 28, 12, 28));
}

// Zero points are one more than stored, or of v2 what is stored; the second group's 3 or 2.
TEST(QuantizedFormatsTest, GptqByHand) {
  const auto row = [](std::vector<float> all) { return std::vector(all.begin(), all.begin() + 8); };
  EXPECT_THAT(row(GptqFiles().Weight(kGptq)), ElementsAre(-1, 0, 1, 2, 0.5F, 1, 1.5F, 2));
  EXPECT_THAT(row(GptqFiles().Weight(With(kGptq, "checkpoint_format", "gptq_v2"))),
              ElementsAre(0, 1, 2, 3, 1, 1.5F, 2, 2.5F));
  Files ordered = GptqFiles();
  ordered.Words("g_idx", {8}, {1, 0, 1, 0, 1, 0, 1, 0});
  EXPECT_THAT(row(ordered.Weight(With(kGptq, "desc_act", true))),
              ElementsAre(-1.5F, 0, -0.5F, 2, 0.5F, 4, 1.5F, 6));
  // A zero point of 16 stands where 15 is stored.
  EXPECT_EQ(GptqFiles().Words("qzeros", {2, 1}, {15, 2}).Weight(kGptq)[0], -16);
}

TEST(QuantizedFormatsTest, CompressedTensorsByHand) {
  EXPECT_THAT(PackedFiles().Weight(Packed()), ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
  Files asymmetric = PackedFiles();
  asymmetric.Words("weight_zero_point", {1, 2}, {2, 4});
  json config = Packed();
  config["config_groups"]["group_0"]["weights"]["symmetric"] = false;
  EXPECT_THAT(asymmetric.Weight(config), ElementsAre(-2, -1, 0, 1, 0, 2, 4, 6));
  Files int8;
  int8.Add<int8_t>("weight", DType::kI8, {2, 2}, {1, -128, 127, 0});
  int8.Floats("weight_scale", {2, 1}, {2, 0.5F}).Floats("input_scale", {1}, {1});
  EXPECT_THAT(int8.Weight(Compressed("int-quantized", {{"strategy", "channel"}})),
              ElementsAre(2, -256, 63.5F, 0));
}

TEST(QuantizedFormatsTest, Fp8ByHand) {
  EXPECT_THAT(Fp8Files().Weight(kFp8), ElementsAre(2, 4, 224, -0.5F));
}

TEST(QuantizedFormatsTest, ProductsAreRoundedToTheScalesOfIntegersAlone) {
  const float third = BFloat16::FromFloat(1.0F / 3).ToFloat();
  const std::vector<uint16_t> scale = {BFloat16::FromFloat(third).bits};
  Files int8;
  int8.Add<int8_t>("weight", DType::kI8, {1, 1}, {101});
  int8.Add<uint16_t>("weight_scale", DType::kBF16, {1}, scale);
  EXPECT_THAT(int8.Weight(Compressed("int-quantized", {{"strategy", "tensor"}})),
              ElementsAre(BFloat16::FromFloat(101 * third).ToFloat()));
  Files fp8;
  fp8.Add<uint8_t>("weight", DType::kF8E4M3, {1, 1}, {0x3b});  // 1.375
  fp8.Add<uint16_t>("weight_scale_inv", DType::kBF16, {1, 1}, scale);
  EXPECT_THAT(fp8.Weight(kFp8), ElementsAre(1.375F * third));
}

TEST(QuantizedFormatsTest, WhatIsNotSupportedIsRefusedByField) {
  const auto error = [](const json& config) {
    const auto method = ReadMethod(config, "q");
    EXPECT_EQ(method.status().code(), StatusCode::kUnimplemented) << method.status().ToString();
    return method.status().message();
  };
  EXPECT_EQ(
      error({{"quant_method", "bitsandbytes"}}),
      "q: quant_method: got \"bitsandbytes\", awq, gptq, compressed-tensors, fp8, modelopt, mxfp4 "
      "are supported");
  EXPECT_EQ(error(With(kAwq, "bits", 3)), "q: bits: got 3, 4 is supported");
  EXPECT_THAT(error(With(kAwq, "version", "gemv")), HasSubstr("version: got \"gemv\""));
  EXPECT_THAT(error(With(kAwq, "zero_point", false)), HasSubstr("zero_point: got false"));
  EXPECT_EQ(error(With(kGptq, "bits", 3)), "q: bits: got 3, 4 and 8 are supported");
  EXPECT_THAT(error(With(kGptq, "checkpoint_format", "marlin")), HasSubstr("checkpoint_format"));
  EXPECT_THAT(error(With(kGptq, "dynamic", {{"+:x", {{"bits", 8}}}})), HasSubstr("dynamic"));
  EXPECT_TRUE(ReadMethod(With(kGptq, "dynamic", {{"-:x", json::object()}}), "q").ok());
  EXPECT_THAT(error(Compressed("pack-quantized", {{"num_bits", 3}})), HasSubstr("num_bits: got 3"));
  EXPECT_THAT(error(Compressed("nvfp4-pack-quantized", {{"num_bits", 4}})),
              HasSubstr("format: got 'nvfp4-pack-quantized'"));
  EXPECT_THAT(error(Compressed("int-quantized", {{"strategy", "token"}})),
              HasSubstr("strategy: got \"token\""));
  EXPECT_THAT(error(With(Packed(), "quantization_status", "frozen")),
              HasSubstr("quantization_status: got \"frozen\""));
  EXPECT_THAT(error(With(kFp8, "fmt", "e5m2")), HasSubstr("fmt: got \"e5m2\""));
  EXPECT_THAT(error({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}),
              HasSubstr("quant_algo: got \"NVFP4\""));
}

TEST(QuantizedFormatsTest, WhatMakesNoSenseIsRefusedByField) {
  const auto error = [](const json& config) {
    const auto method = ReadMethod(config, "q");
    EXPECT_EQ(method.status().code(), StatusCode::kInvalidArgument) << method.status().ToString();
    return method.status().message();
  };
  EXPECT_EQ(error({{"quant_method", "gptq"}}), "q: bits: is missing");
  EXPECT_EQ(error(json::object()), "q: quant_method: is missing");
  EXPECT_EQ(error(json::array()), "q: got [], an object is needed");
  EXPECT_EQ(error({{"quant_method", "compressed-tensors"}}), "q: config_groups: is missing");
  EXPECT_THAT(error(With(kFp8, "weight_block_size", {128, 0})), HasSubstr("weight_block_size"));
  EXPECT_THAT(error(Compressed("int-quantized", {{"strategy", "block"}})),
              HasSubstr("block_structure: is missing"));
}

TEST(QuantizedFormatsTest, TensorsThatDoNotFitAreRefusedByName) {
  EXPECT_EQ(AwqFiles().Words("qzeros", {2, 1}).Error(kAwq),
            "m.qzeros: expected shape [1, 1], found [2, 1]");
  EXPECT_EQ(AwqFiles().Error(With(kAwq, "group_size", 3)),
            "group_size: got 3, which does not divide the 2 columns of m.weight");
  EXPECT_EQ(AwqFiles().Remove("scales").Error(kAwq), "m.scales: is missing");
  EXPECT_EQ(AwqFiles().Remove("qweight").Error(kAwq), "m.qweight: is missing");
  EXPECT_EQ(AwqFiles().Floats("qweight", {2, 1}).Error(kAwq),
            "m.qweight: dtype float32, int32 is needed");
  EXPECT_EQ(AwqFiles().Floats("weight", {8, 2}).Error(kAwq),
            "m.weight: stands beside the tensors that it is packed in");
  EXPECT_EQ(AwqFiles().Error(With(kAwq, "modules_to_not_convert", {"m"})),
            "'m': is packed, and modules_to_not_convert has m, which leaves it alone");
  EXPECT_EQ(GptqFiles().Words("g_idx", {8}, {0, 0, 0, 2}).Error(kGptq),
            "m.g_idx: got 2 of column 3, there are 2 groups");
  EXPECT_EQ(GptqFiles().Words("g_idx", {8}, {0, ~0U}).Error(kGptq),
            "m.g_idx: got -1 of column 1, there are 2 groups");
  EXPECT_EQ(GptqFiles().Error(With(kGptq, "desc_act", true)), "m.g_idx: is missing");
  EXPECT_THAT(GptqFiles().Words("qweight", {1, 7}).Error(kGptq), HasSubstr("no whole words"));
  EXPECT_EQ(PackedFiles().Add<int64_t>("weight_shape", DType::kI64, {2}, {1, 9}).Error(Packed()),
            "m.weight_shape: got [1, 9], which does not fit m.weight_packed [1, 1] of int4");
  EXPECT_EQ(PackedFiles().Remove("weight_scale").Error(Packed()), "m.weight_scale: is missing");
  EXPECT_EQ(PackedFiles().Floats("weight_scale", {1, 3}).Error(Packed()),
            "m.weight_scale: expected shape [1, 2], found [1, 3]");
  json asymmetric = Packed();
  asymmetric["config_groups"]["group_0"]["weights"]["symmetric"] = false;
  EXPECT_EQ(PackedFiles().Error(asymmetric), "m.weight_zero_point: is missing");
  EXPECT_EQ(PackedFiles().Words("weight_zero_point", {2, 2}).Error(asymmetric),
            "m.weight_zero_point: expected shape [1, 2], found [2, 2]");
  json other = Packed();
  other["config_groups"]["group_0"]["targets"] = {"n"};
  EXPECT_THAT(PackedFiles().Error(other), HasSubstr("config_groups has no targets that name it"));
  EXPECT_EQ(Fp8Files().Floats("weight_scale_inv", {2, 2}).Error(kFp8),
            "m.weight_scale_inv: expected shape [1, 2], found [2, 2]");
  EXPECT_EQ(Fp8Files().Floats("weight", {1, 4}).Error(kFp8),
            "m.weight: dtype float32, float8_e4m3fn is needed");
}

}  // namespace
}  // namespace inflight::quantized

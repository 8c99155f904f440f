// SPDX-License-Identifier: Apache-2.0
// Weights of TensorRT-LLM's checkpoints by hand. tests/tools/test_upstream_checkpoints.py has whole
// models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/status_macros.h"
#include "quantized/method.h"

namespace inflight::quantized {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class UpstreamCheckpoint : public testing::Test {
 protected:
  template <typename T>
  void Add(const std::string& name, DType dtype, const Shape& shape, const std::vector<T>& values) {
    std::erase_if(tensors_, [&](const auto& tensor) { return tensor.name == "m." + name; });
    const auto bytes = std::as_bytes(std::span(values));
    const auto& kept = data_.emplace_back(bytes.begin(), bytes.end());
    tensors_.push_back({.name = "m." + name, .dtype = dtype, .shape = shape, .data = kept});
  }
  void Floats(const std::string& name, const Shape& shape, const std::vector<float>& values) {
    Add(name, DType::kF32, shape, values);
  }

  Result<Weight> Read(const json& quantization) {
    ASSIGN_OR_RETURN(const auto method, ReadCheckpointMethod(quantization, false, "q"));
    const artifact::TensorSet set = artifact::TensorSet::Of({}, tensors_);
    ASSIGN_OR_RETURN(auto weight, method->WeightOf(Module(set, "m")));
    return *std::move(weight);
  }
  std::vector<float> Numbers(const json& quantization) {
    const auto weight = Read(quantization);
    EXPECT_EQ(weight.status().ToString(), "OK");
    if (!weight.ok()) return {};
    return All(weight->widened);
  }
  // Elements of a tensor that is computed, of whose dimensions the last is the columns.
  static std::vector<float> All(const artifact::StoredTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
    const int rank = tensor.shape.rank();
    const int64_t width = rank == 1 ? 1 : tensor.shape[rank - 1];
    tensor.reader->Read({0, tensor.shape.num_elements() / width, 0, width}, values.data());
    return values;
  }
  std::unordered_map<std::string, float> ActivationScales(const json& quantization) {
    const auto method = ReadCheckpointMethod(quantization, false, "q");
    artifact::TensorSet set = artifact::TensorSet::Of({}, tensors_);
    const auto unpacked = UnpackAll(**method, set);
    EXPECT_EQ(unpacked.status().ToString(), "OK");
    return unpacked.ok() ? unpacked->activation_scales : std::unordered_map<std::string, float>();
  }
  std::string Error(const json& quantization) {
    return std::string(Read(quantization).status().message());
  }

 private:
  std::deque<std::vector<std::byte>> data_;
  std::vector<artifact::StoredTensor> tensors_;
};

TEST_F(UpstreamCheckpoint, Fp8HasOneScale) {
  // 0x38 is 1, 0xC0 is -2, 0x3C is 1.5, 0 is 0.
  Add<uint8_t>("weight", DType::kF8E4M3, {2, 2}, {0x38, 0xC0, 0x3C, 0});
  Floats("weights_scaling_factor", {1}, {0.5F});
  Floats("activation_scaling_factor", {1}, {7});
  EXPECT_THAT(Numbers({{"quant_algo", "FP8"}}), ElementsAre(0.5F, -1, 0.75F, 0));
  Add<uint8_t>("weight", DType::kI8, {2, 2}, {0x38, 0xC0, 0x3C, 0});
  EXPECT_THAT(Numbers({{"quant_algo", "FP8"}}), ElementsAre(0.5F, -1, 0.75F, 0));
  EXPECT_THAT(ActivationScales({{"quant_algo", "FP8"}}), ElementsAre(Pair("m.weight", 7)));
  Floats("activation_scaling_factor", {2}, {7, 8});
  EXPECT_THAT(ActivationScales({{"quant_algo", "FP8"}}), IsEmpty());
  Floats("weights_scaling_factor", {2}, {0.5F, 1});
  EXPECT_THAT(Error({{"quant_algo", "FP8"}}),
              HasSubstr("m.weights_scaling_factor: expected shape [1], found [2]"));
}

TEST_F(UpstreamCheckpoint, AwqHasPairsOfRowsGroupsAndFactorsOfColumns) {
  const json awq = {{"quant_algo", "W4A16_AWQ"}, {"pre_quant_scale", true}};
  // Rows 1 -1 2 -8 and 7 0 3 1, the second in the high bits.
  Add<uint8_t>("weight", DType::kI8, {1, 4}, {0x71, 0x0F, 0x32, 0x18});
  Floats("weights_scaling_factor", {2, 2}, {1, 10, 100, 1000});
  EXPECT_THAT(Numbers(awq), ElementsAre(1, -1, 20, -80, 700, 0, 3000, 1000));
  Floats("prequant_scaling_factor", {4}, {1, 2, 0.5F, 1});
  EXPECT_THAT(Numbers(awq), ElementsAre(1, -2, 10, -80, 700, 0, 1500, 1000));
  EXPECT_FALSE(Read(awq)->native.has_value());
  Floats("prequant_scaling_factor", {3}, {1, 2, 3});
  EXPECT_THAT(Error(awq), HasSubstr("m.prequant_scaling_factor: expected shape [4], found [3]"));
  Floats("weights_scaling_factor", {2, 3}, {1, 1, 1, 1, 1, 1});
  EXPECT_THAT(Error(awq), HasSubstr("m.weights_scaling_factor: shape [2, 3], a scale for each"));
  Floats("weights_scaling_factor", {4, 2}, {1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(Error(awq), HasSubstr("expected shape [2, 2], found [4, 2]"));
}

TEST_F(UpstreamCheckpoint, OffsetsOfAwqAreWholeNumbersOfScalesWhateverTheyAreRoundedTo) {
  const json awq = {{"quant_algo", "W4A16_AWQ"}, {"has_zero_point", true}};
  // Rows 1 -1 2 -8 and 7 0 3 1, of groups of two columns.
  Add<uint8_t>("weight", DType::kI8, {1, 4}, {0x71, 0x0F, 0x32, 0x18});
  Floats("weights_scaling_factor", {2, 2}, {0.1F, 2, 0.5F, 0});
  // By groups, of each row: 3 * 0.1 as bfloat16 has it, -8 * 0.5, 1 * 2, 0.
  Add<uint16_t>("zero", DType::kBF16, {2, 2}, {0x3E9A, 0xC080, 0x4000, 0});
  EXPECT_THAT(Numbers(awq), ElementsAre(4 * 0.1F, 2 * 0.1F, 6, -14, -0.5F, -4, 0, 0));
  Add<uint16_t>("zero", DType::kBF16, {2, 2}, {0x3E95, 0xC080, 0x4000, 0});  // 2.91 * 0.1
  EXPECT_THAT(Error(awq), HasSubstr("m.zero: has offsets that are no multiple from -8 to 8"));
  Add<uint16_t>("zero", DType::kBF16, {2, 2}, {0x3E9A, 0xC090, 0x4000, 0});  // -9 * 0.5
  EXPECT_THAT(Error(awq), HasSubstr("m.zero: has offsets"));
  Add<uint16_t>("zero", DType::kBF16, {2, 2}, {0x3E9A, 0xC080, 0x4000, 0x3F80});  // 1 of scale 0
  EXPECT_THAT(Error(awq), HasSubstr("m.zero: has offsets"));
  Floats("zero", {4, 1}, {0, 0, 0, 0});
  EXPECT_THAT(Error(awq), HasSubstr("m.zero: expected shape [2, 2], found [4, 1]"));
}

TEST_F(UpstreamCheckpoint, OffsetsOfAwqAreKeptAsTheyWereBeforeTheyWereRounded) {
  Add<uint8_t>("weight", DType::kI8, {1, 16}, std::vector<uint8_t>(16));
  Floats("weights_scaling_factor", {2, 1}, {0.1F, 0.5F});
  Add<uint16_t>("zero", DType::kBF16, {1, 2}, {0x3E9A, 0xC080});
  const auto weight = Read({{"quant_algo", "W4A16_AWQ"}, {"has_zero_point", true}});
  ASSERT_TRUE(weight.ok() && weight->native && weight->native->offsets);
  EXPECT_THAT(All(*weight->native->offsets), ElementsAre(3 * 0.1F, -4));
  EXPECT_THAT(All(weight->native->scales), ElementsAre(0.1F, 0.5F));
}

TEST_F(UpstreamCheckpoint, ExpertsOfAwqHaveADimensionBeforeTheOthers) {
  const json awq = {{"quant_algo", "W4A16_AWQ"}, {"has_zero_point", true}};
  // Of two experts two rows of two columns, of one group each: 1 -1 and 7 0, 2 -8 and 3 1.
  Add<uint8_t>("weight", DType::kI8, {2, 1, 2}, {0x71, 0x0F, 0x32, 0x18});
  Floats("weights_scaling_factor", {2, 2, 1}, {1, 10, 100, 1000});
  Floats("zero", {2, 1, 2}, {1, -20, 300, 0});
  EXPECT_THAT(Numbers(awq), ElementsAre(2, 0, 50, -20, 500, -500, 3000, 1000));
  EXPECT_EQ(Read(awq)->widened.shape, (Shape{2, 2, 2}));
  Floats("prequant_scaling_factor", {2, 2}, {1, 2, 1, 2});
  EXPECT_THAT(Numbers(awq), ElementsAre(2, 0, 50, -40, 500, -1000, 3000, 2000));
  Floats("prequant_scaling_factor", {2, 2}, {1, 2, 1, 3});
  EXPECT_THAT(Error(awq), HasSubstr("m.prequant_scaling_factor: got 3 of column 1 of expert 1, "
                                    "expert 0 has 2"));
  Floats("zero", {2, 2, 1}, {1, -20, 300, 0});
  EXPECT_THAT(Error(awq), HasSubstr("m.zero: expected shape [2, 1, 2], found [2, 2, 1]"));
  Floats("weights_scaling_factor", {4, 1}, {1, 10, 100, 1000});
  EXPECT_THAT(Error(awq), HasSubstr("m.weights_scaling_factor: shape [4, 1], a scale for each"));
}

TEST_F(UpstreamCheckpoint, ExpertsOfFp8HaveAScaleEach) {
  const json fp8 = {{"quant_algo", "FP8"}};
  // 0x38 is 1, 0xC0 is -2, 0x3C is 1.5, 0 is 0.
  Add<uint8_t>("weight", DType::kF8E4M3, {2, 2, 1}, {0x38, 0xC0, 0x3C, 0x38});
  Floats("weights_scaling_factor", {2, 1}, {0.5F, 2});
  EXPECT_THAT(Numbers(fp8), ElementsAre(0.5F, -1, 3, 2));
  const Result<Weight> weight = Read(fp8);
  ASSERT_TRUE(weight.ok() && weight->native);
  EXPECT_EQ(weight->native->codes.shape, (Shape{4, 1}));
  EXPECT_EQ(weight->native->group_size, 0);
  EXPECT_THAT(All(weight->native->scales), ElementsAre(0.5F, 0.5F, 2, 2));
  Floats("weights_scaling_factor", {2}, {0.5F, 4});
  EXPECT_THAT(Numbers(fp8), ElementsAre(0.5F, -1, 6, 4));
  Floats("weights_scaling_factor", {1}, {0.5F});
  EXPECT_THAT(Error(fp8), HasSubstr("m.weights_scaling_factor: expected shape [2], found [1]"));
  Add<uint8_t>("weight", DType::kF8E4M3, {2, 0, 1}, {});
  EXPECT_THAT(Error(fp8), HasSubstr("m.weight: shape [2, 0, 1], a matrix of each expert"));
}

TEST_F(UpstreamCheckpoint, SmoothQuantHasScalesOfRowsAndDividesByFactors) {
  const json smooth = {{"quant_algo", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"}};
  Add<int8_t>("weight", DType::kI8, {2, 2}, {1, -128, 3, 4});
  Floats("per_channel_scale", {1, 2}, {1, 10});
  EXPECT_THAT(Numbers(smooth), ElementsAre(1, -128, 30, 40));
  Floats("smoother", {1, 2}, {2, 4});
  EXPECT_THAT(Numbers(smooth), ElementsAre(0.5F, -32, 15, 10));
  EXPECT_FALSE(Read(smooth)->native.has_value());
  Floats("smoother", {1, 2}, {1, 1});
  EXPECT_THAT(Numbers(smooth), ElementsAre(1, -128, 30, 40));
  EXPECT_TRUE(Read(smooth)->native.has_value());
  Floats("smoother", {1, 2}, {2, 4});
  Floats("per_channel_scale", {1, 1}, {2});
  EXPECT_THAT(Numbers({{"quant_algo", "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN"}}),
              ElementsAre(1, -64, 3, 2));
}

TEST_F(UpstreamCheckpoint, FormsOfThisProjectAndOthersAreNotItsBusiness) {
  const auto reads = [](const json& quantization, bool is_own) {
    const auto method = ReadCheckpointMethod(quantization, is_own, "q");
    return method.ok() && *method != nullptr;
  };
  EXPECT_FALSE(reads({{"quant_algo", nullptr}}, false));
  EXPECT_FALSE(reads({{"quant_algo", "W4A16_GPTQ"}}, false));
  EXPECT_FALSE(reads({{"quant_algo", "W8A8_SQ_PER_CHANNEL"}}, false));
  EXPECT_FALSE(reads({{"quant_algo", "W4A16_AWQ"}}, true));
  EXPECT_TRUE(reads({{"quant_algo", "W4A16_AWQ"}}, false));
}

}  // namespace
}  // namespace inflight::quantized

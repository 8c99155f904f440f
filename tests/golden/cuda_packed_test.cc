// SPDX-License-Identifier: Apache-2.0
// Models of published packed forms on a GPU, experts in MXFP4, int8 and int4 and FP8 in blocks of
// 128 x 128, beside the same directories widened to the model's dtype.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "artifact/safetensors.h"
#include "base/file.h"
#include "constants.h"
#include "fp8_blocks.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"
#include "worse.h"

namespace inflight::golden {
namespace {

using artifact::StoredTensor;
using model::QuantAlgo;

// `from`, a plain directory, with its experts as compressed-tensors packs them in groups of 32:
// int8 or int4.
void WritePackedExperts(const std::filesystem::path& from, int num_bits,
                        const std::filesystem::path& to) {
  const auto set = artifact::TensorSet::OpenModel(from);
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  std::vector<artifact::TensorSpec> specs;
  std::vector<std::vector<std::byte>> values;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape,
                       std::span<const std::byte> bytes) {
    specs.push_back({name, dtype, shape});
    values.emplace_back(bytes.begin(), bytes.end());
  };
  for (const StoredTensor& tensor : set->tensors()) {
    if (tensor.name.find(".experts.") == std::string::npos) {
      add(tensor.name, tensor.dtype, tensor.shape, tensor.data);
      continue;
    }
    ASSERT_EQ(tensor.dtype, DType::kF32);
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    constexpr int64_t kGroup = 32;
    const int per_word = 32 / num_bits, most = (1 << (num_bits - 1)) - 1;
    std::vector<float> scales(static_cast<size_t>(rows * columns / kGroup));
    std::vector<uint32_t> words(static_cast<size_t>(rows * columns / per_word));
    const auto at = [&](int64_t i) { return LoadAs<float>(tensor.data.data(), i); };
    for (int64_t i = 0; i < rows * columns; ++i) {
      float& scale = scales[static_cast<size_t>(i / kGroup)];
      scale = std::max(scale, std::abs(at(i)) / static_cast<float>(most));
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float code = std::round(at(i) / scales[static_cast<size_t>(i / kGroup)]);
      words[static_cast<size_t>(i / per_word)] |=
          static_cast<uint32_t>(static_cast<int>(code) + most + 1) << (i % per_word * num_bits);
    }
    const std::string stem = tensor.name.substr(0, tensor.name.rfind('.'));
    const int64_t shape[] = {rows, columns};
    add(stem + ".weight_packed", DType::kI32, {rows, columns / per_word},
        std::as_bytes(std::span(words)));
    add(stem + ".weight_scale", DType::kF32, {rows, columns / kGroup},
        std::as_bytes(std::span(scales)));
    add(stem + ".weight_shape", DType::kI64, {2}, std::as_bytes(std::span(shape)));
  }
  std::filesystem::create_directories(to);
  auto writer = artifact::SafetensorsWriter::Create(to / "model.safetensors", specs);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (const auto& bytes : values) ASSERT_TRUE(writer->Append(bytes).ok());
  ASSERT_TRUE(writer->Finish().ok());
  auto config = nlohmann::json::parse(*ReadFile(from / "config.json"));
  nlohmann::json weights = {{"num_bits", num_bits}, {"type", "int"}, {"symmetric", true}};
  weights["strategy"] = "group";
  weights["group_size"] = 32;
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "pack-quantized"},
      {"config_groups", {{"group_0", {{"targets", {"re:.*experts.*"}}, {"weights", weights}}}}},
      {"ignore", nlohmann::json::array()}};
  ASSERT_TRUE(WriteFile(to / "config.json", config.dump()).ok());
}

// `from`, a checkpoint in bfloat16, with the linears of its layer in MXFP4 where rows are whole
// groups: as codes, and as the numbers that they stand for.
void WriteMxfp4(const std::filesystem::path& from, bool has_codes,
                const std::filesystem::path& to) {
  const auto set = artifact::TensorSet::OpenFile(from / "rank0.safetensors");
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  std::vector<artifact::TensorSpec> specs;
  std::vector<std::vector<std::byte>> values;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape,
                       std::span<const std::byte> bytes) {
    specs.push_back({name, dtype, shape});
    values.emplace_back(bytes.begin(), bytes.end());
  };
  auto config = nlohmann::json::parse(*ReadFile(from / "config.json"));
  for (const StoredTensor& tensor : set->tensors()) {
    constexpr int64_t kGroup = 32;
    const bool is_linear = tensor.name.find(".layers.") != std::string::npos &&
                           tensor.shape.rank() == 2 && tensor.shape[1] % kGroup == 0;
    if (!is_linear) {
      add(tensor.name, tensor.dtype, tensor.shape, tensor.data);
      continue;
    }
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    std::vector<uint8_t> codes(static_cast<size_t>(rows * columns / 2));
    std::vector<uint8_t> exponents(static_cast<size_t>(rows * columns / kGroup));
    std::vector<std::byte> numbers(BytesOf(DType::kBF16, rows * columns));
    const auto at = [&](int64_t i) { return LoadFloat(tensor.data.data(), tensor.dtype, i); };
    for (int64_t first = 0; first < rows * columns; first += kGroup) {
      float largest = 0x1p-20F;
      for (int64_t i = first; i < first + kGroup; ++i) largest = std::max(largest, std::abs(at(i)));
      const int power = std::ilogb(largest) - 2;  // the largest elements are 4 and 6
      exponents[static_cast<size_t>(first / kGroup)] = static_cast<uint8_t>(127 + power);
      for (int64_t i = first; i < first + kGroup; ++i) {
        constexpr float kElements[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
        int code = 0;
        for (int c = 1; c < 8; ++c)
          if (std::abs(std::abs(at(i)) - std::ldexp(kElements[c], power)) <
              std::abs(std::abs(at(i)) - std::ldexp(kElements[code], power)))
            code = c;
        const float number = std::copysign(std::ldexp(kElements[code], power), at(i));
        StoreFloat(numbers.data(), DType::kBF16, i, number);
        code |= at(i) < 0 ? 8 : 0;
        codes[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(code << (i % 2 * 4));
      }
    }
    if (!has_codes) {
      add(tensor.name, DType::kBF16, tensor.shape, numbers);
      continue;
    }
    const std::string stem = tensor.name.substr(0, tensor.name.rfind('.'));
    add(tensor.name, DType::kI8, {rows, columns / 2}, std::as_bytes(std::span(codes)));
    add(stem + ".weights_scaling_factor", DType::kU8, {rows, columns / kGroup},
        std::as_bytes(std::span(exponents)));
    config["quantization"]["quant_algo"] = "MIXED_PRECISION";
    config["quantization"]["quantized_layers"][stem] = {{"quant_algo", "W4A16_MXFP4"}};
    config["disable_weight_only_quant_plugin"] = true;
  }
  std::filesystem::create_directories(to);
  auto writer = artifact::SafetensorsWriter::Create(to / "rank0.safetensors", specs);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (const auto& bytes : values) ASSERT_TRUE(writer->Append(bytes).ok());
  ASSERT_TRUE(writer->Finish().ok());
  ASSERT_TRUE(WriteFile(to / "config.json", config.dump()).ok());
}

class CudaPackedTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("cuda_packed_" + std::to_string(getpid()) + GetParam());
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  DType dtype() const { return *DTypeFromName(GetParam()); }

  // Logits of the whole of a prompt at once, then of 8 steps of one token.
  std::vector<std::vector<float>> Logits(const std::filesystem::path& model,
                                         const Expected& expected, std::optional<QuantAlgo> algo) {
    Device& device = *TestGpu().value();
    const auto engine = builder::Open(model, device, {.dtype = dtype(), .quant_algo = algo});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (!engine.ok()) return {};
    EXPECT_EQ((*engine)->config.quant_algo, algo ? QuantAlgo::kNone : QuantAlgo::kMixedPrecision);
    const auto tables = ops::CudaOpTables(model::KernelShape((*engine)->config), device);
    PagedModel paged(*engine, tables.front(), device, 1, kBlockSize);
    const auto step = [&](std::span<const TokenId> ids) {
      const Piece piece{0, ids};
      return paged.Step({&piece, 1}, /*last_only=*/false);
    };
    std::vector<std::vector<float>> logits = step(expected.prompt);
    for (size_t i = 0; i < 8; ++i) logits.push_back(step({&expected.greedy[i], 1}).front());
    return logits;
  }

  std::filesystem::path dir_;
};

// A code times a power of two is a number of 16 bits, and products add up in one order.
TEST_P(CudaPackedTest, Mxfp4ExpertsGiveTheLogitsOfTheWidenedOnes) {
  const std::filesystem::path model = DataDir() / "gpt_oss_mxfp4";
  for (const Expected& expected : ReadReference(model))
    EXPECT_EQ(Logits(model, expected, std::nullopt), Logits(model, expected, QuantAlgo::kNone));
}

// Of a dense model: linears whose rows lie in tensor cores' order, and the gated ones, which have
// too few outputs for it and are widened in the workspace.
TEST_P(CudaPackedTest, Mxfp4LinearsGiveLogitsNearThoseOfTheirNumbers) {
  const std::filesystem::path model = DataDir() / "llama_head64";
  ASSERT_EQ(
      builder::Convert({.model_dir = model, .output_dir = dir_ / "plain", .dtype = "bfloat16"}),
      Status::Ok());
  ASSERT_NO_FATAL_FAILURE(WriteMxfp4(dir_ / "plain", /*has_codes=*/true, dir_ / "codes"));
  ASSERT_NO_FATAL_FAILURE(WriteMxfp4(dir_ / "plain", /*has_codes=*/false, dir_ / "numbers"));
  for (const Expected& expected : ReadReference(model)) {
    const auto got = Logits(dir_ / "codes", expected, std::nullopt);
    const auto want = Logits(dir_ / "numbers", expected, QuantAlgo::kNone);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      float worst = 0;
      for (size_t j = 0; j < got[i].size(); ++j)
        worst = Worse(worst, std::abs(got[i][j] - want[i][j]));
      ASSERT_LE(worst, 2 * RoundingBound(dtype(), expected)) << "position " << i;
    }
  }
}

// One of a layer's two products has rows of whole slabs of int4, and the other one is widened.
TEST_P(CudaPackedTest, IntegerExpertsGiveTheLogitsOfTheWidenedOnes) {
  for (const char* const name : {"mixtral_head64", "qwen3_moe_renormalized"})
    for (const int num_bits : {8, 4}) {
      SCOPED_TRACE(std::string(name) + " int" + std::to_string(num_bits));
      ASSERT_NO_FATAL_FAILURE(WritePackedExperts(DataDir() / name, num_bits, dir_));
      for (const Expected& expected : ReadReference(DataDir() / name))
        EXPECT_EQ(Logits(dir_, expected, std::nullopt), Logits(dir_, expected, QuantAlgo::kNone));
    }
}

// Few tokens read the codes, so that the widened weights differ by what rounding took away.
TEST_P(CudaPackedTest, Fp8InBlocksGivesLogitsNearThoseOfTheWidenedWeights) {
  const std::filesystem::path model = DataDir() / "llama_head64";
  ASSERT_NO_FATAL_FAILURE(WriteFp8Blocks(model, dir_));
  for (const Expected& expected : ReadReference(model)) {
    const auto got = Logits(dir_, expected, std::nullopt);
    const auto want = Logits(dir_, expected, QuantAlgo::kNone);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      float worst = 0;
      for (size_t j = 0; j < got[i].size(); ++j)
        worst = Worse(worst, std::abs(got[i][j] - want[i][j]));
      ASSERT_LE(worst, 2 * RoundingBound(dtype(), expected)) << "position " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaPackedTest, testing::Values("bfloat16", "float16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace inflight::golden

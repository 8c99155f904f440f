// SPDX-License-Identifier: Apache-2.0
// Hugging Face directories of quantised weights against transformers on the weights that a second
// implementation dequantised (make_quantized_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "artifact/tensor_set.h"
#include "base/file.h"
#include "builder/builder.h"
#include "builder/weight_source.h"
#include "constants.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/element.h"

namespace inflight::golden {
namespace {

using model::QuantAlgo;
using testing::HasSubstr;

std::filesystem::path QuantizedDir(const std::string& name) {
  return std::filesystem::path(INFLIGHT_QUANTIZED_GOLDEN_DATA) / name;
}

std::vector<std::string> QuantizedNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(QuantizedDir("")))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

uint64_t Fnv1a(std::span<const std::byte> bytes) {
  uint64_t value = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) value = (value ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return value;
}

std::vector<float> Computed(const artifact::StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
  tensor.reader->Read({0, tensor.shape[0], 0, tensor.shape[1]}, values.data());
  return values;
}

std::unique_ptr<builder::WeightSource> OpenWidened(const std::string& name) {
  auto source = builder::OpenWeightSource(QuantizedDir(name),
                                          {.dtype = DType::kF32, .quant_algo = QuantAlgo::kNone});
  EXPECT_TRUE(source.ok()) << source.status().ToString();
  return source.ok() ? *std::move(source) : nullptr;
}

class QuantizedGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

TEST_P(QuantizedGoldenTest, EveryWeightIsWhatTheFormatSays) {
  const auto source = OpenWidened(GetParam());
  ASSERT_NE(source, nullptr);
  const auto reference =
      artifact::TensorSet::OpenFile(QuantizedDir(GetParam()) / "reference.safetensors");
  ASSERT_TRUE(reference.ok());
  int num_packed = 0;
  for (const artifact::StoredTensor& tensor : source->files.front().tensors()) {
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    const auto* hash = reference->Find("hash_" + module);
    ASSERT_EQ(hash != nullptr, tensor.reader != nullptr) << tensor.name;
    if (hash == nullptr) continue;
    ++num_packed;
    const std::vector<float> values = Computed(tensor);
    EXPECT_EQ(Fnv1a(std::as_bytes(std::span(values))),
              ValuesOf<uint64_t>(*reference, hash->name).at(0))
        << tensor.name;
  }
  EXPECT_EQ(num_packed, source->packed.num_weights);
  EXPECT_GE(num_packed, 5);
}

TEST_P(QuantizedGoldenTest, LogitsAndGreedyIdsEqualTransformersOnWidenedWeights) {
  const auto engine = builder::Open(QuantizedDir(GetParam()), *device_,
                                    {.dtype = DType::kF32, .quant_algo = QuantAlgo::kNone});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const Expected expected = ReadReference(QuantizedDir(GetParam())).at(0);
  const auto tables = ops::CpuOpTables({.weight_dtype = DType::kF32,
                                        .kv_dtype = DType::kF32,
                                        .head_dim = (*engine)->config.head_dim,
                                        .num_heads = (*engine)->config.num_heads,
                                        .num_kv_heads = (*engine)->config.num_kv_heads});
  const std::vector<TokenId> ids = expected.Whole();
  PagedModel model(*engine, tables.front(), *device_, 1, kBlockSize);
  const auto logits = AllLogits(model, ids, std::vector<size_t>{ids.size()});
  const size_t vocab = logits.front().size();
  for (size_t i = 0; i < expected.positions.size(); ++i)
    for (size_t v = 0; v < vocab; ++v)
      ASSERT_NEAR(logits[static_cast<size_t>(expected.positions[i])][v],
                  expected.logits[i * vocab + v], kTolerance)
          << "position " << expected.positions[i] << ", token " << v;
  for (size_t i = 0; i < expected.greedy.size(); ++i) {
    const auto& row = logits[expected.prompt.size() - 1 + i];
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), expected.greedy[i]) << "step " << i;
  }
}

// Codes and scales of a kept form are those that the widened weight is made of.
void ExpectKept(const builder::SourceOptions& options, const std::string& name, QuantAlgo algo) {
  const auto widened = OpenWidened(name);
  const auto opened = builder::OpenWeightSource(QuantizedDir(name), options);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const builder::WeightSource& kept = **opened;
  ASSERT_EQ(kept.config.quant_algo, algo);
  EXPECT_THAT(kept.quantization, HasSubstr("7 weights, kept as they are stored"));
  const DType codes_dtype = LinearDType(kept.config);
  int num_linears = 0;
  for (const auto& [slot, recipe] : kept.recipes) {
    if (!IsQuantized(recipe)) continue;
    ++num_linears;
    const int64_t rows = recipe.shape[0], width = recipe.shape[1];
    std::vector<float> numbers(static_cast<size_t>(rows * width));
    builder::CopyRows(widened->recipes.at(slot), 0, rows, DType::kF32, numbers.data());
    std::vector<std::byte> codes(BytesOf(codes_dtype, rows * width));
    builder::CopyRows(recipe, 0, rows, codes_dtype, codes.data());
    const std::string stem = slot.substr(0, slot.rfind('.'));
    std::vector<float> scales(static_cast<size_t>(rows));
    builder::CopyRows(kept.recipes.at(stem + ".per_channel_scale"), 0, rows, DType::kF32,
                      scales.data());
    for (int64_t i = 0; i < rows * width; ++i) {
      const float code = codes_dtype == DType::kI4 ? static_cast<float>(LoadInt4(codes.data(), i))
                         : codes_dtype == DType::kI8
                             ? static_cast<float>(LoadAs<int8_t>(codes.data(), i))
                             : LoadFloat(codes.data(), codes_dtype, i);
      const float value = code * scales[static_cast<size_t>(i / width)];
      const float wide = numbers[static_cast<size_t>(i)];
      // A widened weight of bfloat16 scales is rounded to it; FP8 of float32 scales is not.
      ASSERT_TRUE(wide == value || wide == BFloat16::FromFloat(value).ToFloat())
          << slot << " element " << i << ": " << wide << ", " << value;
    }
  }
  EXPECT_EQ(num_linears, 5);  // qkv, dense, fc, gate, proj
}

TEST(QuantizedFormsTest, FormsThatTheEngineExecutesAreKept) {
  ExpectKept({}, "int8_channel", QuantAlgo::kW8A16);
  ExpectKept({.target = DeviceKind::kCpu}, "int8_channel", QuantAlgo::kW8A16);
  ExpectKept({.target = DeviceKind::kCpu}, "packed_channel", QuantAlgo::kW4A16);
  for (const char* name : {"fp8_channel", "fp8_static", "modelopt"})
    ExpectKept({.target = DeviceKind::kCuda}, name, QuantAlgo::kFp8PerChannelPerToken);
}

TEST(QuantizedFormsTest, OthersAreWidened) {
  const auto algo = [](const char* name, const builder::SourceOptions& options) {
    const auto source = builder::OpenWeightSource(QuantizedDir(name), options);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    return source.ok() ? (*source)->config.quant_algo : QuantAlgo::kNone;
  };
  EXPECT_EQ(algo("fp8_channel", {.target = DeviceKind::kCpu}), QuantAlgo::kNone);
  EXPECT_EQ(algo("int8_static_zeros", {}), QuantAlgo::kNone);
  EXPECT_EQ(algo("awq_g128", {.target = DeviceKind::kCuda}), QuantAlgo::kNone);
  EXPECT_EQ(algo("fp8_blocks", {.target = DeviceKind::kCuda}), QuantAlgo::kNone);
  // Scales of bfloat16 do not fit float16.
  EXPECT_EQ(algo("int8_channel", {.dtype = DType::kF16}), QuantAlgo::kNone);
  EXPECT_EQ(algo("int8_channel", {.quant_algo = QuantAlgo::kNone}), QuantAlgo::kNone);
  EXPECT_EQ(algo("int8_channel", {.quant_algo = QuantAlgo::kW4A16}), QuantAlgo::kW4A16);
}

TEST(QuantizedFormsTest, TheMemoryPlanCountsWhatIsInMemory) {
  const auto describe = [](const char* name) {
    return builder::Describe(QuantizedDir(name)).value();
  };
  const builder::Description awq = describe("awq_g32_ignored");
  EXPECT_EQ(awq.stored_quantization,
            "AWQ, int4 with zero points, groups of 32; 6 weights, widened to float16");
  const builder::Description kept = describe("int8_channel");
  EXPECT_EQ(kept.stored_quantization,
            "compressed-tensors int8, a scale per channel, dynamic activations; 7 weights, kept as "
            "they are stored");
  constexpr uint64_t kLinears = 64 * (64 + 32 + 32 + 64 + 3 * 64);
  EXPECT_GE(awq.weight_bytes, 2 * kLinears);
  EXPECT_GT(awq.weight_bytes - kept.weight_bytes, kLinears / 2);
}

// Checkpoint and engine of a widened model, and of one whose form is kept.
TEST(QuantizedFormsTest, EveryRoadGivesTheSameAnswers) {
  const auto dir =
      std::filesystem::path(testing::TempDir()) / ("quantized_roads_" + std::to_string(getpid()));
  const auto device = Device::Cpu(2);
  for (const char* name : {"packed_zeros_order", "packed_channel"}) {
    std::filesystem::remove_all(dir);
    ASSERT_TRUE(
        builder::Convert({.model_dir = QuantizedDir(name), .output_dir = dir / "checkpoint"}).ok());
    const auto config = nlohmann::json::parse(*ReadFile(dir / "checkpoint/config.json"));
    EXPECT_EQ(config["quantization"]["quant_algo"] == "W4A16",
              std::string(name) == "packed_channel");
    ASSERT_TRUE(
        builder::Build(
            {.checkpoint_dir = dir / "checkpoint", .output_dir = dir / "engine", .limits = {}})
            .ok());
    const Expected expected = ReadReference(QuantizedDir(name)).at(0);
    std::vector<std::vector<std::vector<float>>> answers;
    for (const auto& road : {QuantizedDir(name), dir / "checkpoint", dir / "engine"}) {
      const auto engine = builder::Open(road, *device, {});
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      const auto tables = ops::CpuOpTables({.weight_dtype = model::LinearDType((*engine)->config),
                                            .dtype = DType::kBF16,
                                            .kv_dtype = DType::kBF16,
                                            .head_dim = 32,
                                            .num_heads = 2,
                                            .num_kv_heads = 1});
      PagedModel model(*engine, tables.front(), *device, 1, kBlockSize);
      answers.push_back(
          AllLogits(model, expected.Whole(), std::vector<size_t>{expected.Whole().size()}));
    }
    EXPECT_EQ(answers[0], answers[1]);
    EXPECT_EQ(answers[0], answers[2]);
  }
  std::filesystem::remove_all(dir);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedGoldenTest, testing::ValuesIn(QuantizedNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace inflight::golden

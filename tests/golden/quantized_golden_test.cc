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
#include <numeric>
#include <string>
#include <unordered_map>

#include "artifact/tensor_set.h"
#include "base/file.h"
#include "builder/builder.h"
#include "builder/weight_source.h"
#include "constants.h"
#include "golden_reference.h"
#include "model/supported.h"
#include "paged_model.h"
#include "tensor/element.h"
#include "worse.h"

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

struct KeptForm {
  QuantAlgo algo = QuantAlgo::kNone;
  int group_size = 0;
  bool has_zero_point = false;
  int num_linears = 5;  // qkv, dense, fc, gate, proj
  std::string_view becomes = "7 weights, kept as they are stored";
};

// Rows of a recipe as float32.
std::vector<float> NumbersOf(const builder::WeightRecipe& recipe) {
  std::vector<float> numbers(static_cast<size_t>(recipe.shape.num_elements()));
  builder::CopyRows(recipe, 0, recipe.shape[0], DType::kF32, numbers.data());
  return numbers;
}

float CodeAt(const std::vector<std::byte>& codes, DType dtype, int64_t i) {
  if (dtype == DType::kI4) return static_cast<float>(LoadInt4(codes.data(), i));
  if (dtype == DType::kI8) return static_cast<float>(LoadAs<int8_t>(codes.data(), i));
  return LoadFloat(codes.data(), dtype, i);
}

// Codes, scales and offsets of a kept linear stand for what its widened weight is made of.
void ExpectSameNumbers(const builder::WeightSource& kept, const builder::WeightSource& widened,
                       const model::WeightSlot& matrix) {
  const std::string stem = matrix.name.substr(0, matrix.name.rfind('.'));
  const builder::WeightRecipe& recipe = kept.recipes.at(matrix.name);
  const DType dtype = matrix.form.dtype;
  const int64_t rows = recipe.shape[0], width = recipe.shape[1];
  const std::vector<float> numbers = NumbersOf(widened.recipes.at(matrix.name));
  std::vector<std::byte> codes(BytesOf(dtype, rows * width));
  builder::CopyRows(recipe, 0, rows, dtype, codes.data());
  const bool has_groups = matrix.form.has_groups();
  const std::vector<float> scales = NumbersOf(
      kept.recipes.at(stem + (has_groups ? ".weights_scaling_factor" : ".per_channel_scale")));
  std::vector<float> offsets(scales.size());
  if (matrix.form.has_offsets) offsets = NumbersOf(kept.recipes.at(stem + ".zero"));
  const int64_t num_groups = matrix.form.NumGroups(width);
  std::vector<int32_t> order(static_cast<size_t>(width));
  std::iota(order.begin(), order.end(), 0);
  if (matrix.form.has_order)
    builder::CopyRows(kept.recipes.at(stem + ".column_order"), 0, width, DType::kI32, order.data());
  for (int64_t i = 0; i < rows * width; ++i) {
    const auto group =
        static_cast<size_t>(i / width * num_groups + i % width / (width / num_groups));
    const float value = std::fma(CodeAt(codes, dtype, i), scales[group], offsets[group]);
    const int64_t column = order[static_cast<size_t>(i % width)];
    const float wide = numbers[static_cast<size_t>(i / width * width + column)];
    // A widened weight of 16-bit scales is rounded to them; FP8 of float32 scales is not.
    ASSERT_TRUE(wide == value || wide == BFloat16::FromFloat(value).ToFloat() ||
                wide == Float16::FromFloat(value).ToFloat())
        << matrix.name << " element " << i << ": " << wide << ", " << value;
  }
}

void ExpectKept(const builder::SourceOptions& options, const std::string& name,
                const KeptForm& form) {
  SCOPED_TRACE(name);
  const auto widened = OpenWidened(name);
  const auto opened = builder::OpenWeightSource(QuantizedDir(name), options);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const builder::WeightSource& kept = **opened;
  ASSERT_EQ(kept.config.quant_algo, form.algo);
  EXPECT_EQ(kept.config.group_size, form.group_size);
  EXPECT_EQ(kept.config.has_zero_point, form.has_zero_point);
  EXPECT_THAT(kept.quantization, HasSubstr(form.becomes));
  model::DecoderWeights unused;
  int num_linears = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(kept.config, unused)) {
    if (!slot.is_quantized) continue;
    ++num_linears;
    ExpectSameNumbers(kept, *widened, slot);
  }
  EXPECT_EQ(num_linears, form.num_linears);
}

TEST(QuantizedFormsTest, FormsThatTheEngineExecutesAreKept) {
  using enum QuantAlgo;
  ExpectKept({}, "int8_channel", {kW8A16});
  ExpectKept({.target = DeviceKind::kCpu}, "int8_channel", {kW8A16});
  ExpectKept({.target = DeviceKind::kCpu}, "packed_channel", {kW4A16});
  ExpectKept({}, "gptq_sym_channel", {kW4A16});
  for (const char* name : {"fp8_channel", "fp8_static", "modelopt"})
    ExpectKept({.target = DeviceKind::kCuda}, name, {kFp8PerChannelPerToken});
  // Of rows that are whole blocks.
  for (const auto target : {std::optional<DeviceKind>(), std::optional(DeviceKind::kCpu),
                            std::optional(DeviceKind::kCuda)})
    ExpectKept({.target = target}, "fp8_blocks",
               {.algo = kMixedPrecision,
                .num_linears = 1,
                .becomes = "6 weights, 1 kept as they are stored and 5 widened to bfloat16"});
}

TEST(QuantizedFormsTest, GroupsAreKeptOnEveryTarget) {
  using enum QuantAlgo;
  for (const auto target : {std::optional<DeviceKind>(), std::optional(DeviceKind::kCpu),
                            std::optional(DeviceKind::kCuda)}) {
    ExpectKept({.target = target}, "awq_g128", {kW4A16Gptq, 128, true});
    ExpectKept({.target = target}, "packed_group", {kW4A16Gptq, 32, false});
    ExpectKept({.target = target}, "awq_g32_ignored",
               {.algo = kMixedPrecision, .num_linears = 4, .becomes = "6 weights, kept as"});
  }
  for (const auto target : {std::optional<DeviceKind>(), std::optional(DeviceKind::kCuda)})
    ExpectKept({.target = target}, "gptq8_v2_head",
               {.algo = kMixedPrecision, .num_linears = 6, .becomes = "8 weights, kept as"});
  ExpectKept({}, "packed_zeros", {kW4A16Gptq, 64, true});
  for (const char* name : {"gptq_act_order", "packed_zeros_order"})
    ExpectKept({.target = DeviceKind::kCpu}, name, {.algo = kMixedPrecision});
  // k and v are plain, and so then is qkv.
  ExpectKept({}, "int8_static_zeros",
             {.algo = kMixedPrecision,
              .num_linears = 4,
              .becomes = "5 weights, 4 kept as they are stored and 1 widened to float16"});
}

// A GPU reads the numbers that the codes of columns in an order of their own stand for.
TEST(QuantizedFormsTest, WhatAGpuDoesNotComputeWithIsWidenedForIt) {
  const auto dir =
      std::filesystem::path(testing::TempDir()) / ("quantized_gpu_" + std::to_string(getpid()));
  for (const char* name : {"gptq_act_order", "packed_zeros_order"}) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(dir);
    ASSERT_TRUE(builder::Convert({.model_dir = QuantizedDir(name), .output_dir = dir}).ok());
    const auto host = builder::OpenWeightSource(dir, {.target = DeviceKind::kCpu});
    const auto gpu = builder::OpenWeightSource(dir, {.target = DeviceKind::kCuda});
    ASSERT_TRUE(host.ok() && gpu.ok()) << host.status().ToString() << gpu.status().ToString();
    EXPECT_TRUE(CheckSupported((*gpu)->config, model::FactsOf(DeviceKind::kCuda)).ok());
    EXPECT_TRUE((*gpu)->config.slot_forms.empty());
    model::DecoderWeights unused;
    for (const model::WeightSlot& slot : model::WeightSlots((*host)->config, unused))
      if (slot.is_quantized && !IsQuantized((*gpu)->recipes.at(slot.name)))
        ExpectSameNumbers(**host, **gpu, slot);
  }
  std::filesystem::remove_all(dir);
}

TEST(QuantizedFormsTest, OthersAreWidened) {
  const auto algo = [](const char* name, const builder::SourceOptions& options) {
    const auto source = builder::OpenWeightSource(QuantizedDir(name), options);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    return source.ok() ? (*source)->config.quant_algo : QuantAlgo::kNone;
  };
  EXPECT_EQ(algo("fp8_channel", {.target = DeviceKind::kCpu}), QuantAlgo::kNone);
  EXPECT_EQ(algo("gptq_act_order", {.target = DeviceKind::kCuda}), QuantAlgo::kNone);
  EXPECT_EQ(algo("packed_zeros_order", {.quant_algo = QuantAlgo::kNone}), QuantAlgo::kNone);
  EXPECT_EQ(algo("awq_g128", {.quant_algo = QuantAlgo::kNone}), QuantAlgo::kNone);
  // A CPU multiplies FP8 with bfloat16 alone.
  EXPECT_EQ(algo("fp8_blocks", {.dtype = DType::kF16, .target = DeviceKind::kCpu}),
            QuantAlgo::kNone);
  EXPECT_EQ(algo("fp8_blocks", {.dtype = DType::kF16}), QuantAlgo::kNone);
  EXPECT_EQ(algo("fp8_blocks", {.dtype = DType::kF32}), QuantAlgo::kNone);
  // Scales of bfloat16 do not fit float16.
  EXPECT_EQ(algo("int8_channel", {.dtype = DType::kF16}), QuantAlgo::kNone);
  EXPECT_EQ(algo("int8_channel", {.quant_algo = QuantAlgo::kNone}), QuantAlgo::kNone);
  EXPECT_EQ(algo("int8_channel", {.quant_algo = QuantAlgo::kW4A16}), QuantAlgo::kW4A16);
  // Quantised anew, in other groups than the stored ones.
  const auto anew = builder::OpenWeightSource(
      QuantizedDir("packed_group"), {.quant_algo = QuantAlgo::kW4A16Gptq, .group_size = 16});
  ASSERT_TRUE(anew.ok()) << anew.status().ToString();
  EXPECT_EQ((*anew)->config.group_size, 16);
  EXPECT_THAT((*anew)->quantization, HasSubstr("widened to bfloat16"));
}

// Scales of rows are kept in the dtype that the model has in the end. Those of this one are
// float16: float32 holds them, bfloat16, which float32 becomes on a GPU, does not.
TEST(QuantizedFormsTest, ScalesOfRowsFitTheDTypeThatFloat32Becomes) {
  const auto dir =
      std::filesystem::path(testing::TempDir()) / ("quantized_narrow_" + std::to_string(getpid()));
  std::filesystem::remove_all(dir);
  std::filesystem::copy(QuantizedDir("gptq_sym_channel"), dir);
  auto config = nlohmann::json::parse(*ReadFile(dir / "config.json"));
  config["dtype"] = "float32";
  ASSERT_TRUE(WriteFile(dir / "config.json", config.dump()).ok());
  const auto wide = builder::OpenWeightSource(dir, {.target = DeviceKind::kCpu});
  ASSERT_TRUE(wide.ok()) << wide.status().ToString();
  EXPECT_EQ((*wide)->config.quant_algo, QuantAlgo::kW4A16);
  const auto narrow = builder::OpenWeightSource(dir, {.target = DeviceKind::kCuda});
  ASSERT_TRUE(narrow.ok()) << narrow.status().ToString();
  EXPECT_EQ((*narrow)->config.dtype, DType::kBF16);
  EXPECT_EQ((*narrow)->config.quant_algo, QuantAlgo::kNone);
  std::filesystem::remove_all(dir);
}

// What the second implementation says of kept forms (make_grouped_golden.py), on every table.
TEST(QuantizedFormsTest, KeptFormsGiveTheLogitsOfTheSecondImplementation) {
  const auto device = Device::Cpu(2);
  int num_models = 0;
  for (const std::string& name : QuantizedNames()) {
    const auto path = QuantizedDir(name) / "kept.safetensors";
    if (!std::filesystem::exists(path)) continue;
    ++num_models;
    const auto expected = artifact::TensorSet::OpenFile(path);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    const auto engine = builder::Open(QuantizedDir(name), *device, {.dtype = DType::kF32});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    ASSERT_NE((*engine)->config.quant_algo, QuantAlgo::kNone) << name;
    const auto tables = ops::CpuOpTables({.weight_dtype = model::LinearDType((*engine)->config),
                                          .kv_dtype = DType::kF32,
                                          .head_dim = (*engine)->config.head_dim,
                                          .num_heads = (*engine)->config.num_heads,
                                          .num_kv_heads = (*engine)->config.num_kv_heads});
    for (const ops::OpTable& table : tables)
      for (int p = 0; expected->Find("prompt_" + std::to_string(p)) != nullptr; ++p) {
        const auto wide = ValuesOf<int64_t>(*expected, "prompt_" + std::to_string(p));
        const auto want = ValuesOf<float>(*expected, "logits_" + std::to_string(p));
        const std::vector<TokenId> ids(wide.begin(), wide.end());
        PagedModel model(*engine, table, *device, 1, kBlockSize);
        const auto logits = AllLogits(model, ids, std::vector<size_t>{ids.size()});
        float worst = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          const auto& row = logits[i / logits.front().size()];
          worst = Worse(worst, std::fabs(row[i % row.size()] - want[i]));
        }
        EXPECT_LE(worst, kTolerance) << name << ", " << table.name << ", prompt " << p;
      }
  }
  EXPECT_EQ(num_models, 11);
}

TEST(QuantizedFormsTest, TheMemoryPlanCountsWhatIsInMemory) {
  const auto describe = [](const char* name) {
    return builder::Describe(QuantizedDir(name)).value();
  };
  const builder::Description widened = describe("fp8_channel");
  EXPECT_THAT(widened.stored_quantization, HasSubstr("weights, widened to bfloat16"));
  const builder::Description kept = describe("int8_channel");
  EXPECT_EQ(kept.stored_quantization,
            "compressed-tensors int8, a scale per channel, dynamic activations; 7 weights, kept as "
            "they are stored");
  constexpr uint64_t kLinears = 64 * (64 + 32 + 32 + 64 + 3 * 64);
  EXPECT_GE(widened.weight_bytes, 2 * kLinears);
  EXPECT_GT(widened.weight_bytes - kept.weight_bytes, kLinears / 2);
  const builder::Description ordered = describe("gptq_act_order");
  EXPECT_EQ(
      ordered.stored_quantization,
      "GPTQ, int4, with zero points, groups of 32, act-order; 7 weights, kept as they are stored");
  EXPECT_LT(ordered.weight_bytes, kept.weight_bytes);
  const builder::Description groups = describe("packed_group");
  // Half a byte a weight, and a scale for 32 of them: an eighth.
  EXPECT_LT(groups.weight_bytes, kept.weight_bytes);
  EXPECT_GT(groups.weight_bytes + kLinears / 2 - kLinears / 8 + 4096, kept.weight_bytes);
}

// Checkpoint and engine of a widened model, and of one whose form is kept.
TEST(QuantizedFormsTest, EveryRoadGivesTheSameAnswers) {
  const auto dir =
      std::filesystem::path(testing::TempDir()) / ("quantized_roads_" + std::to_string(getpid()));
  const auto device = Device::Cpu(2);
  for (const auto& [name, algo] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"fp8_blocks", "MIXED_PRECISION"},
           {"packed_zeros_order", "MIXED_PRECISION"},
           {"gptq_act_order", "MIXED_PRECISION"},
           {"packed_channel", "W4A16"},
           {"packed_zeros", "W4A16_GPTQ"},
           {"int8_static_zeros", "MIXED_PRECISION"},
           {"gptq8_v2_head", "MIXED_PRECISION"},
           {"awq_g32_ignored", "MIXED_PRECISION"}}) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(dir);
    ASSERT_TRUE(
        builder::Convert({.model_dir = QuantizedDir(name), .output_dir = dir / "checkpoint"}).ok());
    const auto config = nlohmann::json::parse(*ReadFile(dir / "checkpoint/config.json"));
    EXPECT_EQ(config["quantization"]["quant_algo"], algo);
    ASSERT_TRUE(
        builder::Build(
            {.checkpoint_dir = dir / "checkpoint", .output_dir = dir / "engine", .limits = {}})
            .ok());
    const Expected expected = ReadReference(QuantizedDir(name)).at(0);
    std::vector<std::vector<std::vector<float>>> answers;
    for (const auto& road : {QuantizedDir(name), dir / "checkpoint", dir / "engine"}) {
      const auto engine = builder::Open(road, *device, {});
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      const DType dtype = (*engine)->config.dtype;
      const auto tables = ops::CpuOpTables({.weight_dtype = model::LinearDType((*engine)->config),
                                            .dtype = dtype,
                                            .kv_dtype = dtype,
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

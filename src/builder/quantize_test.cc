// SPDX-License-Identifier: Apache-2.0
#include "builder/quantize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "artifact/engine_file.h"
#include "builder/builder.h"
#include "builder/test_models.h"

namespace inflight::builder {
namespace {

using model::QuantAlgo;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<int8_t> Quantized(const std::vector<float>& row, float scale) {
  std::vector<int8_t> out(row.size());
  EXPECT_EQ(QuantizeRow(row.data(), static_cast<int64_t>(row.size()), DType::kI8, out.data()),
            scale);
  return out;
}

// docs/reference/artifacts.md: amax / 128, so that the largest positive weight saturates and the
// largest negative one does not; halves go away from zero.
TEST(QuantizeRowTest, HandCheckedRows) {
  EXPECT_THAT(Quantized({64, -64, 0.25F, -0.25F, 0.2F, 1}, 0.5F),
              ElementsAre(127, -128, 1, -1, 0, 2));
  EXPECT_THAT(Quantized({-3}, 3.0F / 128), ElementsAre(-128));
  EXPECT_THAT(Quantized({0, -0.0F}, 0), ElementsAre(0, 0));
}

// amax / 8, and the low nibble first: 7 and -8, 1 and -1 (halves), 0 and 3, 2 and -2.
TEST(QuantizeRowTest, HandCheckedInt4Rows) {
  const std::vector<float> row = {16, -16, 1, -1, 0.9F, 6, 4.9F, -3.1F};
  uint8_t out[4] = {};
  EXPECT_EQ(QuantizeRow(row.data(), 8, DType::kI4, out), 2);
  EXPECT_THAT(out, ElementsAre(0x87, 0xf1, 0x30, 0xe2));
  const float zeros[] = {0, -0.0F};
  EXPECT_EQ(QuantizeRow(zeros, 2, DType::kI4, out), 0);
  EXPECT_EQ(out[0], 0);
}

// docs/reference/artifacts.md: amax / 448 with a floor of 1 / (448 * 512), to nearest even.
TEST(QuantizeRowTest, HandCheckedFp8Rows) {
  const auto quantized = [](const std::vector<float>& row, float scale) {
    std::vector<Float8E4M3> codes(row.size());
    EXPECT_EQ(
        QuantizeRow(row.data(), static_cast<int64_t>(row.size()), DType::kF8E4M3, codes.data()),
        scale);
    std::vector<float> out;
    for (const Float8E4M3 code : codes) out.push_back(code.ToFloat());
    return out;
  };
  EXPECT_THAT(quantized({896, -896, 2, 17, 19, 0.1F}, 2),
              ElementsAre(448, -448, 1, 8, 10, 0x1.ap-5F));  // 8.5 and 9.5: ties
  EXPECT_THAT(quantized({1e-9F, 0}, 1.0F / 512 / 448), ElementsAre(0, 0));
}

TEST(QuantizeRowTest, WhatIsNoNumberMakesTheScaleNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const float row[] = {1, bad};
    for (const DType dtype : {DType::kI8, DType::kI4, DType::kF8E4M3}) {
      uint8_t out[3] = {5, 5, 5};
      EXPECT_TRUE(std::isnan(QuantizeRow(row, 2, dtype, out)));
      EXPECT_EQ(out[0], 0);
      EXPECT_EQ(out[1], dtype == DType::kI4 ? 5 : 0);
      EXPECT_EQ(out[2], 5);
    }
  }
}

class QuantizeTest : public testing::Test {
 protected:
  QuantizeTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("quantize_" + std::to_string(getpid()) + info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    TinyLlama().Write(dir_ / "hf");
  }
  ~QuantizeTest() override { std::filesystem::remove_all(dir_); }

  Status ConvertTo(const std::string& dtype, QuantAlgo algo = QuantAlgo::kW8A16) {
    return Convert({.model_dir = dir_ / "hf",
                    .output_dir = dir_ / "checkpoint",
                    .dtype = dtype,
                    .quant_algo = algo});
  }
  nlohmann::json Config() {
    return nlohmann::json::parse(*ReadFile(dir_ / "checkpoint" / "config.json"));
  }
  void SetConfig(const nlohmann::json& config) {
    ASSERT_TRUE(WriteFile(dir_ / "checkpoint" / "config.json", config.dump()).ok());
  }

  std::filesystem::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

TEST_F(QuantizeTest, TheCheckpointHoldsInt8RowsAndAScaleForEach) {
  ASSERT_TRUE(ConvertTo("float32").ok());
  EXPECT_EQ(Config()["quantization"]["quant_algo"], "W8A16");
  EXPECT_EQ(Config()["disable_weight_only_quant_plugin"], true);
  const auto set = artifact::TensorSet::OpenFile(dir_ / "checkpoint" / "rank0.safetensors");
  ASSERT_TRUE(set.ok());
  for (const char* stem : {"attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj"}) {
    const std::string at = std::string("transformer.layers.0.") + stem;
    const auto* weight = set->Find(at + ".weight");
    const auto* scale = set->Find(at + ".per_channel_scale");
    ASSERT_TRUE(weight != nullptr && scale != nullptr) << at;
    EXPECT_EQ(weight->dtype, DType::kI8);
    EXPECT_EQ(scale->dtype, DType::kF32);
    EXPECT_EQ(scale->shape, Shape{weight->shape[0]});
  }
  // The embedding, the head and the norms keep their dtype.
  for (const char* name :
       {"transformer.vocab_embedding.weight", "lm_head.weight", "transformer.ln_f.weight",
        "transformer.layers.0.input_layernorm.weight"})
    EXPECT_EQ(set->Find(name)->dtype, DType::kF32) << name;

  const auto* dense = set->Find("transformer.layers.0.attention.dense.weight");
  const auto* scales = set->Find("transformer.layers.0.attention.dense.per_channel_scale");
  const auto values = TinyLlama().Values("model.layers.0.self_attn.o_proj.weight");
  for (size_t row = 0; row < 16; ++row) {
    float scale = 0;
    std::memcpy(&scale, scales->data.data() + 4 * row, 4);
    EXPECT_EQ(scale, values[16 * row + 15] / 128);  // rows ascend
    for (size_t k = 0; k < 16; ++k) {
      const auto q = static_cast<int8_t>(dense->data[16 * row + k]);
      // Half a step, or up to a whole one where the largest weights saturate.
      EXPECT_NEAR(scale * q, values[16 * row + k], (q == 127 ? 1.0F : 0.5F) * scale * 1.0001F);
    }
  }
}

// The formula in float64, and how safetensors holds int4: int8 of half the width.
TEST_F(QuantizeTest, TheCheckpointHoldsTwoInt4ToAByte) {
  TestModel model = TinyLlama();
  model.is_wavy = true;
  model.Write(dir_ / "hf");
  ASSERT_TRUE(ConvertTo("float32", QuantAlgo::kW4A16).ok());
  EXPECT_EQ(Config()["quantization"]["quant_algo"], "W4A16");
  EXPECT_EQ(Config()["disable_weight_only_quant_plugin"], true);
  const auto set = artifact::TensorSet::OpenFile(dir_ / "checkpoint" / "rank0.safetensors");
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->Find("lm_head.weight")->dtype, DType::kF32);
  const auto* weight = set->Find("transformer.layers.0.mlp.proj.weight");
  const auto* scales = set->Find("transformer.layers.0.mlp.proj.per_channel_scale");
  ASSERT_TRUE(weight != nullptr && scales != nullptr);
  EXPECT_EQ(weight->dtype, DType::kI8);
  EXPECT_EQ(weight->shape, (Shape{16, 12}));
  const auto values = model.Values("model.layers.0.mlp.down_proj.weight");
  std::set<int> codes;
  for (size_t row = 0; row < 16; ++row) {
    double largest = 0;
    for (size_t k = 0; k < 24; ++k) largest = std::fmax(largest, std::fabs(values[24 * row + k]));
    float scale = 0;
    std::memcpy(&scale, scales->data.data() + 4 * row, 4);
    EXPECT_EQ(scale, largest / 8);
    for (size_t k = 0; k < 24; ++k) {
      const double steps = values[24 * row + k] / (largest / 8);
      const double rounded = std::copysign(std::floor(std::fabs(steps) + 0.5), steps);
      const auto byte = static_cast<int>(weight->data[12 * row + k / 2]);
      const int nibble = k % 2 == 0 ? byte % 16 : byte / 16;
      EXPECT_EQ(nibble < 8 ? nibble : nibble - 16, std::fmin(rounded, 7)) << row << " " << k;
      codes.insert(nibble);
    }
  }
  EXPECT_EQ(codes.size(), 16U);
}

TEST_F(QuantizeTest, ScalesAreStoredInTheModelsDtype) {
  ASSERT_TRUE(ConvertTo("bfloat16").ok());
  const auto set = artifact::TensorSet::OpenFile(dir_ / "checkpoint" / "rank0.safetensors");
  EXPECT_EQ(set->Find("transformer.layers.0.mlp.fc.per_channel_scale")->dtype, DType::kBF16);
}

// Float checkpoints may leave quantising to whoever loads them; a build may ask for it.
class LateQuantizeTest : public QuantizeTest, public testing::WithParamInterface<QuantAlgo> {};

TEST_P(LateQuantizeTest, QuantisingLateGivesTheSameWeights) {
  TestModel model = TinyLlama();
  model.is_wavy = true;
  model.Write(dir_ / "hf");
  const QuantAlgo algo = GetParam();
  ASSERT_TRUE(ConvertTo("bfloat16", algo).ok());
  const auto early = Open(dir_ / "checkpoint", *device_);
  ASSERT_TRUE(early.ok()) << early.status().ToString();

  ASSERT_TRUE(ConvertTo("bfloat16", QuantAlgo::kNone).ok());
  auto config = Config();
  config["quantization"]["quant_algo"] = QuantAlgoName(algo);
  SetConfig(config);
  const auto at_load = Open(dir_ / "checkpoint", *device_);
  ASSERT_TRUE(at_load.ok()) << at_load.status().ToString();
  config["quantization"]["quant_algo"] = nullptr;
  SetConfig(config);
  const auto on_request =
      Open(dir_ / "checkpoint", *device_, {.dtype = {}, .quant_algo = algo, .limits = {}});
  ASSERT_TRUE(on_request.ok()) << on_request.status().ToString();

  for (const auto& engine : {*at_load, *on_request}) {
    const ops::Weight& a = (*early)->weights.layers[0].proj;
    const ops::Weight& b = engine->weights.layers[0].proj;
    ASSERT_EQ(b.dtype, algo == QuantAlgo::kW4A16 ? DType::kI4 : DType::kI8);
    EXPECT_EQ(std::memcmp(a.data, b.data,
                          ops::WeightBytes(a.dtype, a.layout, a.out_features, a.in_features)),
              0);
    EXPECT_EQ(std::vector<float>(a.scales, a.scales + a.out_features),
              std::vector<float>(b.scales, b.scales + b.out_features));
    EXPECT_EQ(engine->weights.lm_head.dtype, DType::kBF16);
  }
}

INSTANTIATE_TEST_SUITE_P(Algos, LateQuantizeTest,
                         testing::Values(QuantAlgo::kW8A16, QuantAlgo::kW4A16),
                         [](const auto& info) { return std::string(QuantAlgoName(info.param)); });

// Four bits a weight, the file and the memory of a loaded engine included; through a checkpoint and
// directly, for both kinds of device.
TEST_F(QuantizeTest, AnInt4EngineKeepsFourBitsAWeight) {
  TestModel model = TinyLlama();
  model.is_wavy = true;
  model.Write(dir_ / "hf");
  ASSERT_TRUE(ConvertTo("auto", QuantAlgo::kW4A16).ok());
  for (const DeviceKind target : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const auto build = [&](const char* from, std::optional<QuantAlgo> algo) {
      const Status built = Build({.checkpoint_dir = dir_ / from,
                                  .output_dir = dir_ / "engine",
                                  .dtype = DType::kF16,
                                  .quant_algo = algo,
                                  .limits = {},
                                  .target = target});
      EXPECT_TRUE(built.ok()) << built.ToString();
      return *ReadFile(dir_ / "engine" / "rank0.engine");
    };
    EXPECT_EQ(build("checkpoint", {}), build("hf", QuantAlgo::kW4A16));
    const auto table = artifact::ReadEngineTable(dir_ / "engine" / "rank0.engine");
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    for (const artifact::EngineTensor& tensor : table->tensors) {
      if (!tensor.name.ends_with("mlp.proj.weight")) continue;
      EXPECT_EQ(tensor.dtype, DType::kI4);
      EXPECT_EQ(tensor.shape, (Shape{16, 24}));
      EXPECT_EQ(tensor.layout, target == DeviceKind::kCpu ? "panel64_nibbles" : "row_major");
      EXPECT_EQ(tensor.num_bytes, (target == DeviceKind::kCpu ? 64 : 16) * 24 / 2);
    }
  }
}

TEST_F(QuantizeTest, WhatInt4CannotHoldIsNamed) {
  TinyLlama(/*intermediate_size=*/23).Write(dir_ / "hf");
  EXPECT_THAT(
      ConvertTo("auto", QuantAlgo::kW4A16).message(),
      HasSubstr("intermediate_size: got 23, with int4 weights only even numbers are supported"));
  EXPECT_TRUE(ConvertTo("auto", QuantAlgo::kW8A16).ok());

  TinyLlama().Write(dir_ / "hf");
  ASSERT_TRUE(ConvertTo("float32", QuantAlgo::kW4A16).ok());
  auto config = Config();
  config["quantization"]["quant_algo"] = "W8A16";
  SetConfig(config);
  EXPECT_THAT(Open(dir_ / "checkpoint", *device_).status().message(),
              HasSubstr("expected shape [32, 16], found [32, 8]"));
  config["quantization"]["quant_algo"] = "W4A16";
  config["disable_weight_only_quant_plugin"] = false;
  SetConfig(config);
  EXPECT_THAT(Open(dir_ / "checkpoint", *device_).status().message(),
              HasSubstr("disable_weight_only_quant_plugin: got false: int4 weights"));
  config["disable_weight_only_quant_plugin"] = true;
  SetConfig(config);
  EXPECT_THAT(Open(dir_ / "checkpoint", *device_,
                   {.dtype = {}, .quant_algo = QuantAlgo::kW8A16, .limits = {}})
                  .status()
                  .message(),
              HasSubstr("the weights are int4 already"));
}

TEST_F(QuantizeTest, AnEngineKeepsItsQuantisation) {
  ASSERT_TRUE(Build({.checkpoint_dir = dir_ / "hf",
                     .output_dir = dir_ / "engine",
                     .quant_algo = QuantAlgo::kW8A16,
                     .limits = {}})
                  .ok());
  const auto engine = Open(dir_ / "engine", *device_);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_EQ((*engine)->config.quant_algo, QuantAlgo::kW8A16);
  EXPECT_EQ((*engine)->weights.layers[0].qkv.layout, ops::WeightLayout::kPanel64Vnni4);
  EXPECT_NE((*engine)->weights.layers[0].qkv.scales, nullptr);
  EXPECT_THAT(
      Open(dir_ / "engine", *device_, {.dtype = {}, .quant_algo = QuantAlgo::kNone, .limits = {}})
          .status()
          .message(),
      HasSubstr("the engine's quantisation is W8A16, not none; rebuild it"));
}

// FP8 survives convert, build and a further build: the same codes and scales whichever way they
// came.
TEST_F(QuantizeTest, Fp8IsReadAsItWasWritten) {
  constexpr QuantAlgo kFp8 = QuantAlgo::kFp8PerChannelPerToken;
  TestModel model = TinyLlama(/*intermediate_size=*/32);
  model.Write(dir_ / "hf");
  ASSERT_TRUE(Convert({.model_dir = dir_ / "hf",
                       .output_dir = dir_ / "checkpoint",
                       .quant_algo = kFp8,
                       .fp8_kv_cache = true})
                  .ok());
  EXPECT_EQ(Config()["dtype"], "bfloat16") << "auto, beside FP8";
  EXPECT_EQ(Config()["quantization"]["quant_algo"], "FP8_PER_CHANNEL_PER_TOKEN");
  EXPECT_EQ(Config()["quantization"]["kv_cache_quant_algo"], "FP8");
  const auto build = [&](const char* from, const char* to, std::optional<QuantAlgo> algo) {
    const Status built = Build({.checkpoint_dir = dir_ / from,
                                .output_dir = dir_ / to,
                                .quant_algo = algo,
                                .limits = {},
                                .target = DeviceKind::kCuda});
    EXPECT_TRUE(built.ok()) << built.ToString();
    return *ReadFile(dir_ / to / "rank0.engine");
  };
  const std::string engine = build("checkpoint", "engine", {});
  EXPECT_EQ(engine, build("hf", "direct", kFp8));
  EXPECT_THAT(engine, HasSubstr("float8_e4m3fn"));
  const auto described = Describe(dir_ / "engine");
  ASSERT_TRUE(described.ok()) << described.status().ToString();
  EXPECT_EQ(described->config.quant_algo, kFp8);
  EXPECT_TRUE(described->config.fp8_kv_cache);
  EXPECT_FALSE(Describe(dir_ / "direct")->config.fp8_kv_cache);

  EXPECT_THAT(Open(dir_ / "checkpoint", *device_).status().message(),
              HasSubstr("cpu: a model in FP8 needs an NVIDIA GPU"));
  EXPECT_THAT(
      Build({.checkpoint_dir = dir_ / "checkpoint", .output_dir = dir_ / "no", .limits = {}})
          .message(),
      HasSubstr("quant_algo: got FP8_PER_CHANNEL_PER_TOKEN for target cpu"));
  EXPECT_THAT(Open(dir_ / "hf", *device_, {.fp8_kv_cache = true}).status().message(),
              HasSubstr("cpu: a KV cache in FP8 needs an NVIDIA GPU"));
  EXPECT_THAT(Build({.checkpoint_dir = dir_ / "checkpoint",
                     .output_dir = dir_ / "no",
                     .quant_algo = QuantAlgo::kW8A16,
                     .limits = {}})
                  .message(),
              HasSubstr("the weights are FP8 already"));
  EXPECT_THAT(
      ConvertTo("float32", kFp8).message(),
      HasSubstr("dtype: got float32, with FP8 weights only bfloat16 and float16 are supported"));
  model.config["torch_dtype"] = "float16";
  model.Write(dir_ / "hf");
  ASSERT_TRUE(ConvertTo("auto", kFp8).ok());
  EXPECT_EQ(Config()["dtype"], "float16") << "auto, the model's own";
  TinyLlama().Write(dir_ / "hf");
  EXPECT_THAT(ConvertTo("auto", kFp8).message(),
              HasSubstr("intermediate_size: got 24, with FP8 weights only multiples of 16"));
}

// The head's codes and scales, cut by ranks and whole; upstream leaves the head out unless a list
// of exclusions does not name it.
TEST_F(QuantizeTest, Fp8TakesTheHeadInWhereItIsAskedTo) {
  constexpr QuantAlgo kFp8 = QuantAlgo::kFp8PerChannelPerToken;
  TestModel model = TinyLlama(/*intermediate_size=*/32);
  model.config["vocab_size"] = 48;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    model.Tensor(name).shape = {48, 16};
  model.Write(dir_ / "hf");
  const auto build = [&](const std::filesystem::path& from, std::optional<QuantAlgo> algo,
                         std::optional<bool> head) {
    const Status built = Build({.checkpoint_dir = from,
                                .output_dir = dir_ / "engine",
                                .quant_algo = algo,
                                .quantize_lm_head = head,
                                .limits = {},
                                .merge_ranks = true,
                                .target = DeviceKind::kCuda});
    EXPECT_TRUE(built.ok()) << built.ToString();
    return *ReadFile(dir_ / "engine" / "rank0.engine");
  };
  const std::string without = build(dir_ / "hf", kFp8, {});
  EXPECT_THAT(without, Not(HasSubstr("lm_head.per_channel_scale")));
  const std::string with = build(dir_ / "hf", kFp8, true);
  EXPECT_THAT(with, HasSubstr("lm_head.per_channel_scale"));
  const auto described = Describe(dir_ / "engine");
  ASSERT_TRUE(described.ok()) << described.status().ToString();
  EXPECT_TRUE(described->config.quantize_lm_head);
  EXPECT_THAT(Describe(dir_ / "engine", {.quantize_lm_head = false}).status().message(),
              HasSubstr("the engine's lm_head is float8_e4m3fn, not of the model's dtype"));
  for (const int tp_size : {1, 2}) {
    ASSERT_TRUE(Convert({.model_dir = dir_ / "hf",
                         .output_dir = dir_ / "checkpoint",
                         .quant_algo = kFp8,
                         .quantize_lm_head = true,
                         .tp_size = tp_size})
                    .ok());
    EXPECT_THAT(Config()["quantization"]["exclude_modules"].dump(), Not(HasSubstr("lm_head")));
    EXPECT_EQ(build(dir_ / "checkpoint", {}, {}), with) << tp_size;
  }
  const auto error = [&](QuantAlgo algo) {
    return Build({.checkpoint_dir = dir_ / "hf",
                  .output_dir = dir_ / "no",
                  .quant_algo = algo,
                  .quantize_lm_head = true,
                  .limits = {},
                  .target = DeviceKind::kCuda})
        .message();
  };
  EXPECT_EQ(error(QuantAlgo::kW8A16), "");
  EXPECT_THAT(error(QuantAlgo::kNone), HasSubstr("quantize_lm_head: got true, only beside"));
  model.config["vocab_size"] = 44;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    model.Tensor(name).shape = {44, 16};
  model.Write(dir_ / "hf");
  EXPECT_THAT(error(kFp8), HasSubstr("vocab_size: got 44, with quantize_lm_head only multiples"));
  model.config["tie_word_embeddings"] = true;
  model.Write(dir_ / "hf");
  EXPECT_THAT(error(kFp8), HasSubstr("whose lm_head is its embedding table"));
}

// Beside int8 and int4 weights the head is int8, and on the CPU so is a table that is the head.
TEST_F(QuantizeTest, IntegersTakeTheHeadIn) {
  const auto build = [&](const std::filesystem::path& from, std::optional<QuantAlgo> algo,
                         std::optional<int> group_size, std::optional<bool> head) {
    const Status built = Build({.checkpoint_dir = from,
                                .output_dir = dir_ / "engine",
                                .quant_algo = algo,
                                .group_size = group_size,
                                .quantize_lm_head = head,
                                .limits = {},
                                .merge_ranks = true});
    EXPECT_TRUE(built.ok()) << built.ToString();
    return *ReadFile(dir_ / "engine" / "rank0.engine");
  };
  struct Case {
    QuantAlgo algo;
    std::optional<int> group_size;
    bool is_tied;
    model::LinearForm head;
  };
  using enum QuantAlgo;
  const model::LinearForm rows = {.dtype = DType::kI8};
  const model::LinearForm groups = {.dtype = DType::kI8, .group_size = 16};
  for (const auto& [algo, group_size, is_tied, head] : {Case{kW8A16, {}, false, rows},
                                                        {kW4A16, {}, false, rows},
                                                        {kW4A16, {}, true, rows},
                                                        {kW4A16Gptq, 16, true, groups},
                                                        {kW8A16Gptq, 16, false, groups}}) {
    SCOPED_TRACE(fmt::format("{}, tied: {}", QuantAlgoName(algo), is_tied));
    TestModel model = TinyLlama(/*intermediate_size=*/32);
    model.is_wavy = true;
    model.config["tie_word_embeddings"] = is_tied;
    model.Write(dir_ / "hf");
    const std::string with = build(dir_ / "hf", algo, group_size, true);
    const auto engine =
        Open(dir_ / "engine", *device_,
             {.quant_algo = algo, .group_size = group_size, .quantize_lm_head = true});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    const model::ModelConfig& config = (*engine)->config;
    EXPECT_EQ(config.quant_algo, kMixedPrecision);
    EXPECT_EQ(FormOfTable(config, StemOfHead(config)), head);
    EXPECT_EQ(FormOf(config, "transformer.layers.0.mlp.fc").dtype,
              algo == kW4A16 || algo == kW4A16Gptq ? DType::kI4 : DType::kI8);
    EXPECT_EQ(FormOfTable(config, model::kEmbeddingStem).is_quantized(), is_tied);
    EXPECT_THAT(Open(dir_ / "engine", *device_, {.quantize_lm_head = false}).status().message(),
                HasSubstr("the engine's lm_head is int8, not of the model's dtype"));
    EXPECT_THAT(Open(dir_ / "engine", *device_, {.quant_algo = algo}).status().message(),
                HasSubstr("the engine's quantisation is MIXED_PRECISION, not "));
    for (const int tp_size : {1, 2}) {
      if (tp_size == 2 && group_size) continue;  // which cuts no groups of 16
      ASSERT_TRUE(Convert({.model_dir = dir_ / "hf",
                           .output_dir = dir_ / "checkpoint",
                           .dtype = "float32",
                           .quant_algo = algo,
                           .group_size = group_size,
                           .quantize_lm_head = true,
                           .tp_size = tp_size})
                      .ok());
      const std::string of_checkpoint = build(dir_ / "checkpoint", algo, group_size, true);
      EXPECT_EQ(build(dir_ / "checkpoint", {}, {}, {}), of_checkpoint) << tp_size;
      // Ranks store a tied table twice.
      if (!is_tied || tp_size == 1) {
        EXPECT_EQ(of_checkpoint, with) << tp_size;
      }
      EXPECT_THAT(Open(dir_ / "checkpoint", *device_, {.quant_algo = algo}).status().message(),
                  HasSubstr("already"));
    }
  }
}

// A GPU has no tables of integers to look up.
TEST_F(QuantizeTest, IntegersTakeTheHeadInOnGpusWhereItIsNoTable) {
  for (const bool is_tied : {false, true}) {
    TestModel model = TinyLlama(/*intermediate_size=*/32);
    model.config["tie_word_embeddings"] = is_tied;
    model.Write(dir_ / "hf");
    const Status built = Build({.checkpoint_dir = dir_ / "hf",
                                .output_dir = dir_ / "gpu",
                                .quant_algo = QuantAlgo::kW4A16Gptq,
                                .group_size = 16,
                                .quantize_lm_head = true,
                                .limits = {},
                                .target = DeviceKind::kCuda});
    if (is_tied) {
      EXPECT_THAT(built.message(), HasSubstr("on a GPU unless lm_head is the embedding table"));
      continue;
    }
    ASSERT_TRUE(built.ok()) << built.ToString();
    const auto described = Describe(dir_ / "gpu");
    ASSERT_TRUE(described.ok()) << described.status().ToString();
    EXPECT_EQ(FormOfTable(described->config, model::kHeadStem),
              (model::LinearForm{.dtype = DType::kI8, .group_size = 16}));
  }
}

// Asked for of a checkpoint whose layers are quantised already.
TEST_F(QuantizeTest, AHeadIsTakenInLate) {
  ASSERT_TRUE(ConvertTo("float32", QuantAlgo::kW8A16).ok());
  std::vector<std::string> engines;
  for (const auto& [from, algo] :
       {std::pair("checkpoint", std::optional<QuantAlgo>()), {"hf", QuantAlgo::kW8A16}}) {
    const Status built = Build({.checkpoint_dir = dir_ / from,
                                .output_dir = dir_ / "engine",
                                .quant_algo = algo,
                                .quantize_lm_head = true,
                                .limits = {}});
    ASSERT_TRUE(built.ok()) << built.ToString();
    engines.push_back(*ReadFile(dir_ / "engine" / "rank0.engine"));
  }
  EXPECT_EQ(engines[0], engines[1]);
}

TEST_F(QuantizeTest, WhatCannotBeReadIsRefusedByName) {
  ASSERT_TRUE(ConvertTo("float32").ok());
  const auto plain = Config();
  const auto error = [&](const char* section, const char* key, const nlohmann::json& value) {
    auto config = plain;
    (section == nullptr ? config : config[section])[key] = value;
    SetConfig(config);
    return Open(dir_ / "checkpoint", *device_).status().message();
  };
  EXPECT_THAT(error(nullptr, "disable_weight_only_quant_plugin", false),
              HasSubstr("disable_weight_only_quant_plugin: got false"));
  EXPECT_THAT(error("quantization", "quant_algo", "NVFP4"),
              HasSubstr("MIXED_PRECISION, FP8_PER_CHANNEL_PER_TOKEN and, of checkpoints, FP8, "));
  EXPECT_THAT(error("quantization", "quant_algo", "FP8"),
              HasSubstr("weights_scaling_factor: is missing"));
  EXPECT_THAT(error("quantization", "quant_algo", nullptr), HasSubstr("dtype int8"));
  EXPECT_THAT(error("quantization", "kv_cache_quant_algo", "INT8"),
              HasSubstr("only null and FP8 are supported"));
  EXPECT_THAT(error("quantization", "exclude_modules", {"lm_head", "*.mlp.fc"}),
              HasSubstr("exclude_modules: got \"*.mlp.fc\""));
  EXPECT_EQ(error("quantization", "exclude_modules", {"lm_head", "router"}), "");
  EXPECT_THAT(error("quantization", "exclude_modules", {"router"}),
              HasSubstr("quantize_lm_head: got true, only beside quant_algo FP8"));

  SetConfig(plain);
  const Status to_float = Build({.checkpoint_dir = dir_ / "checkpoint",
                                 .output_dir = dir_ / "engine",
                                 .quant_algo = QuantAlgo::kNone,
                                 .limits = {}});
  EXPECT_THAT(to_float.message(), HasSubstr("the weights are int8 already"));
}

}  // namespace
}  // namespace inflight::builder

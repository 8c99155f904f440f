// SPDX-License-Identifier: Apache-2.0
// Weights in groups on every road: converted, built, split over ranks, merged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "artifact/engine_file.h"
#include "builder/engine_memory.h"
#include "builder/quantize.h"
#include "builder/test_models.h"
#include "builder/weight_source.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

namespace fs = std::filesystem;
using model::QuantAlgo;
using testing::HasSubstr;

// hidden 64, inner 96, two layers.
TestModel GroupsLlama() {
  constexpr int kHidden = 64, kInner = 96, kHead = 16;
  TestModel model = TinyLlama();
  model.is_wavy = true;
  model.config.update({{"hidden_size", kHidden},
                       {"intermediate_size", kInner},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"head_dim", kHead}});
  model.tensors = {{"model.embed_tokens.weight", DType::kF32, {10, kHidden}},
                   {"model.norm.weight", DType::kF32, {kHidden}},
                   {"lm_head.weight", DType::kF32, {10, kHidden}}};
  for (int i = 0; i < 2; ++i) {
    const auto add = [&](const std::string& name, const Shape& shape) {
      model.tensors.push_back(
          {"model.layers." + std::to_string(i) + "." + name + ".weight", DType::kF32, shape});
    };
    add("self_attn.q_proj", {4 * kHead, kHidden});
    add("self_attn.k_proj", {2 * kHead, kHidden});
    add("self_attn.v_proj", {2 * kHead, kHidden});
    add("self_attn.o_proj", {kHidden, 4 * kHead});
    add("mlp.gate_proj", {kInner, kHidden});
    add("mlp.up_proj", {kInner, kHidden});
    add("mlp.down_proj", {kHidden, kInner});
    add("input_layernorm", {kHidden});
    add("post_attention_layernorm", {kHidden});
  }
  return model;
}

class GroupsTest : public testing::Test {
 protected:
  GroupsTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::path(testing::TempDir()) / ("groups_" + std::to_string(getpid()) + info->name());
    fs::remove_all(dir_);
    GroupsLlama().Write(hf());
  }
  ~GroupsTest() override { fs::remove_all(dir_); }

  fs::path hf() const { return dir_ / "hf"; }
  fs::path checkpoint() const { return dir_ / "checkpoint"; }

  Status ConvertTo(QuantAlgo algo, int group_size, int tp_size = 1, int pp_size = 1) {
    return Convert({.model_dir = hf(),
                    .output_dir = checkpoint(),
                    .dtype = "float32",
                    .quant_algo = algo,
                    .group_size = group_size,
                    .tp_size = tp_size,
                    .pp_size = pp_size});
  }
  std::string BuildFrom(const fs::path& from, BuildOptions options) {
    options.checkpoint_dir = from;
    options.output_dir = dir_ / "engine";
    const Status done = Build(options);
    EXPECT_TRUE(done.ok()) << done.ToString();
    return ReadFile(dir_ / "engine/rank0.engine").value();
  }

  fs::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

// By the formula of docs/reference/artifacts.md: the largest magnitude of a group over 8, codes to
// the nearest, half away from zero.
TEST_F(GroupsTest, EachGroupIsRoundedByItsOwnLargestNumber) {
  const auto source = OpenWeightSource(
      hf(), {.dtype = DType::kF32, .quant_algo = QuantAlgo::kW4A16Gptq, .group_size = 16});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const std::vector<float> want = GroupsLlama().Values("model.layers.1.mlp.down_proj.weight");
  model::DecoderWeights unused;
  std::vector<float> scales(64 * 6);
  std::vector<std::byte> codes(64 * 96 / 2);
  int num_found = 0;
  for (const model::WeightSlot& slot : model::WeightSlots((*source)->config, unused)) {
    if (slot.name.find("layers.1.mlp.proj") == std::string::npos) continue;
    ++num_found;
    if (slot.is_quantized)
      CopySlotRows(**source, slot, 0, 64, codes.data());
    else
      CopySlotRows(**source, slot, 0, 64, scales.data());
    // Columns of a slot alone are what stands in the whole rows.
    if (slot.is_quantized) {
      std::vector<std::byte> part(64 * 32 / 2);
      CopySlotBlock(**source, slot, {.num_rows = 64, .column = 32, .num_columns = 32}, part.data());
      for (size_t n = 0; n < 64; ++n)
        EXPECT_EQ(std::memcmp(part.data() + n * 16, codes.data() + n * 48 + 16, 16), 0) << n;
    } else {
      std::vector<float> part(64 * 2);
      CopySlotBlock(**source, slot, {.num_rows = 64, .column = 2, .num_columns = 2}, part.data());
      for (size_t n = 0; n < 64; ++n) EXPECT_EQ(part[n * 2 + 1], scales[n * 6 + 3]) << n;
    }
  }
  ASSERT_EQ(num_found, 2);
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t first = i / 16 * 16;
    float largest = 0;
    for (size_t k = first; k < first + 16; ++k) largest = std::max(largest, std::abs(want[k]));
    const float scale = scales[i / 16];
    ASSERT_EQ(scale, largest / 8);
    const auto code = std::clamp(std::round(want[i] / scale), -8.0F, 7.0F);
    ASSERT_EQ(static_cast<float>(LoadInt4(codes.data(), static_cast<int64_t>(i))), code) << i;
  }
}

TEST_F(GroupsTest, CheckpointsAndEnginesHoldTheSameWhenTheyAreQuantised) {
  for (const QuantAlgo algo : {QuantAlgo::kW4A16Gptq, QuantAlgo::kW8A16Gptq})
    for (const DeviceKind target : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      const std::optional<DType> dtype =
          target == DeviceKind::kCuda ? std::optional(DType::kBF16) : DType::kF32;
      ASSERT_EQ(ConvertTo(algo, 32), Status::Ok());
      const auto config = nlohmann::json::parse(*ReadFile(checkpoint() / "config.json"));
      EXPECT_EQ(config["quantization"]["quant_algo"], model::QuantAlgoName(algo));
      EXPECT_EQ(config["quantization"]["group_size"], 32);
      const std::string early =
          BuildFrom(checkpoint(), {.dtype = DType::kF32, .target = DeviceKind::kCpu});
      const std::string late =
          BuildFrom(hf(), {.dtype = DType::kF32, .quant_algo = algo, .group_size = 32});
      EXPECT_EQ(early, late);
      const std::string narrow = BuildFrom(
          hf(),
          {.dtype = dtype, .quant_algo = algo, .group_size = 32, .target = target, .tune = false});
      EXPECT_FALSE(narrow.empty());
    }
  const auto engine = Open(dir_ / "engine", *device_);
  EXPECT_EQ(engine.status().code(), StatusCode::kFailedPrecondition) << "built for a GPU";
}

TEST_F(GroupsTest, EnginesOpenWithWhatTheyWereBuiltOf) {
  BuildFrom(hf(), {.dtype = DType::kF32, .quant_algo = QuantAlgo::kW4A16Gptq, .group_size = 32});
  const auto engine = Open(dir_ / "engine", *device_);
  const auto direct =
      Open(hf(), *device_,
           {.dtype = DType::kF32, .quant_algo = QuantAlgo::kW4A16Gptq, .group_size = 32});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  ASSERT_TRUE(direct.ok()) << direct.status().ToString();
  const ops::Weight& a = (*engine)->weights.layers[1].proj;
  const ops::Weight& b = (*direct)->weights.layers[1].proj;
  EXPECT_EQ(a.group_size, 32);
  EXPECT_EQ(a.offsets, nullptr);
  std::vector<float> of_a(96), of_b(96);
  for (int64_t row = 0; row < 64; ++row) {
    ops::UnpackWeightRow(a, row, of_a.data());
    ops::UnpackWeightRow(b, row, of_b.data());
    EXPECT_EQ(of_a, of_b);
  }
  EXPECT_EQ(Describe(dir_ / "engine")->weight_bytes,
            EngineBytes((*direct)->config, DeviceKind::kCpu));
  const auto error = [&](std::optional<QuantAlgo> algo, std::optional<int> size) {
    return Open(dir_ / "engine", *device_, {.quant_algo = algo, .group_size = size})
        .status()
        .message();
  };
  EXPECT_THAT(error(QuantAlgo::kW4A16, {}), HasSubstr("quantisation is W4A16_GPTQ, not W4A16"));
  EXPECT_THAT(error({}, 16), HasSubstr("group_size is 32, not 16"));
  EXPECT_TRUE(Open(dir_ / "engine", *device_, {.group_size = 32}).ok());
}

// A rank holds whole groups, and its file what it makes of the model itself.
TEST_F(GroupsTest, RanksAreCutBetweenGroups) {
  ASSERT_EQ(ConvertTo(QuantAlgo::kW4A16Gptq, 16, 2, 2), Status::Ok());
  const std::string merged = BuildFrom(checkpoint(), {.dtype = DType::kF32, .merge_ranks = true});
  ASSERT_EQ(ConvertTo(QuantAlgo::kW4A16Gptq, 16), Status::Ok());
  EXPECT_EQ(BuildFrom(checkpoint(), {.dtype = DType::kF32}), merged);
  const std::string of_hf = BuildFrom(
      hf(),
      {.dtype = DType::kF32, .quant_algo = QuantAlgo::kW4A16Gptq, .group_size = 16, .tp_size = 2});
  ASSERT_EQ(ConvertTo(QuantAlgo::kW4A16Gptq, 16, 2), Status::Ok());
  EXPECT_EQ(BuildFrom(checkpoint(), {.dtype = DType::kF32}), of_hf);
  // 96 columns in two parts of 48.
  const Status cut = ConvertTo(QuantAlgo::kW4A16Gptq, 32, 2);
  EXPECT_EQ(cut.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(cut.message(), HasSubstr("tp_size: got 2, which cuts the 96 columns of "
                                       "transformer.layers.0.mlp.proj.weight into parts of 48"));
}

TEST_F(GroupsTest, WhatAsksForOtherGroupsIsRefused) {
  ASSERT_EQ(ConvertTo(QuantAlgo::kW4A16Gptq, 16), Status::Ok());
  const auto error = [&](const fs::path& dir, std::optional<QuantAlgo> algo, int size) {
    return Open(dir, *device_, {.quant_algo = algo, .group_size = size}).status().message();
  };
  EXPECT_THAT(error(checkpoint(), {}, 32),
              HasSubstr("the weights are int4 already in groups of 16"));
  EXPECT_THAT(error(hf(), {}, 32), HasSubstr("group_size: got 32, only beside quant_algo"));
  EXPECT_THAT(error(hf(), QuantAlgo::kW8A16, 32), HasSubstr("group_size: got 32, only beside"));
  EXPECT_THAT(error(hf(), QuantAlgo::kW4A16Gptq, 48),
              HasSubstr("group_size: got 48, hidden_size 64 is no multiple of it"));
}

TEST_F(GroupsTest, RandomWeightsHaveGroups) {
  model::ModelConfig config = OpenWeightSource(hf(), {}).value()->config;
  config.quant_algo = QuantAlgo::kW4A16Gptq;
  config.group_size = 32;
  config.has_zero_point = true;
  const auto engine = Random(config, {}, /*seed=*/1, *device_);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const ops::Weight& proj = (*engine)->weights.layers[0].proj;
  std::vector<float> row(96);
  double sum = 0, squares = 0;
  for (int64_t n = 0; n < 64; ++n) {
    ops::UnpackWeightRow(proj, n, row.data());
    for (const float value : row) {
      sum += value;
      squares += double{value} * value;
    }
  }
  // A variance of 1 / width about 0.
  EXPECT_NEAR(sum / (64 * 96), 0, 0.01);
  EXPECT_NEAR(squares / 64, 1, 0.1);
}

}  // namespace
}  // namespace inflight::builder

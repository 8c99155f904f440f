// SPDX-License-Identifier: Apache-2.0
#include "model/linear_form.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/config_json.h"
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/supported.h"
#include "model/weight_slots.h"

namespace inflight::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig GroupedLlama(QuantAlgo algo = QuantAlgo::kW4A16Gptq, int group_size = 32) {
  ModelConfig config = (*FamilyOf("LlamaForCausalLM"))->config;
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.intermediate_size = 96;
  config.max_position_embeddings = 64;
  config.quant_algo = algo;
  config.group_size = group_size;
  return config;
}

ModelConfig MixedLlama() {
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  const LinearForm int4 = {.dtype = DType::kI4, .group_size = 32, .has_offsets = true};
  config.slot_forms = {{"transformer.layers.0.attention.qkv", int4},
                       {"transformer.layers.1.mlp.fc", int4},
                       {"transformer.layers.1.mlp.gate", int4},
                       {"transformer.layers.1.mlp.proj", {.dtype = DType::kI8, .group_size = 16}},
                       {"transformer.layers.1.attention.dense", {.dtype = DType::kI8}}};
  return config;
}

std::vector<std::string> SlotLines(const ModelConfig& config, std::string_view layer) {
  DecoderWeights weights;
  std::vector<std::string> lines;
  for (const WeightSlot& slot : WeightSlots(config, weights))
    if (const size_t at = slot.name.find(layer); at != std::string::npos && slot.shape.rank() == 2)
      lines.push_back(slot.name.substr(at + layer.size()) + " " + slot.shape.ToString() + " " +
                      std::string(DTypeName(StoredDType(config, slot))));
  return lines;
}

TEST(LinearForm, GroupsHaveScalesAndOffsetsBehindTheirMatrices) {
  ModelConfig config = GroupedLlama();
  EXPECT_EQ(Validate(config), Status::Ok());
  EXPECT_THAT(SlotLines(config, "layers.0."),
              ElementsAre("attention.qkv.weight [128, 64] int4",
                          "attention.qkv.weights_scaling_factor [128, 2] float32",
                          "attention.dense.weight [64, 64] int4",
                          "attention.dense.weights_scaling_factor [64, 2] float32",
                          "mlp.fc.weight [96, 64] int4", "mlp.gate.weight [96, 64] int4",
                          "mlp.fc.weights_scaling_factor [96, 2] float32",
                          "mlp.gate.weights_scaling_factor [96, 2] float32",
                          "mlp.proj.weight [64, 96] int4",
                          "mlp.proj.weights_scaling_factor [64, 3] float32"));
  config.has_zero_point = true;
  // Gate and up lie side by side in all that they have (GatedLinear of ops/cuda/linear.cc).
  EXPECT_THAT(
      SlotLines(config, "layers.0.mlp."),
      ElementsAre("fc.weight [96, 64] int4", "gate.weight [96, 64] int4",
                  "fc.weights_scaling_factor [96, 2] float32",
                  "gate.weights_scaling_factor [96, 2] float32", "fc.zero [96, 2] float32",
                  "gate.zero [96, 2] float32", "proj.weight [64, 96] int4",
                  "proj.weights_scaling_factor [64, 3] float32", "proj.zero [64, 3] float32"));
  EXPECT_THAT(SlotLines(config, "layers.1.attention.dense."),
              ElementsAre("weight [64, 64] int4", "weights_scaling_factor [64, 2] float32",
                          "zero [64, 2] float32"));
  config.group_size = 0;  // a row is a group
  EXPECT_EQ(Validate(config), Status::Ok());
  EXPECT_THAT(SlotLines(config, "layers.1.mlp.proj."),
              ElementsAre("weight [64, 96] int4", "weights_scaling_factor [64, 1] float32",
                          "zero [64, 1] float32"));
}

TEST(LinearForm, EachLinearMayHaveItsOwn) {
  const ModelConfig config = MixedLlama();
  EXPECT_EQ(Validate(config), Status::Ok());
  EXPECT_EQ(LinearDType(config), DType::kI8);
  EXPECT_THAT(
      SlotLines(config, "layers.0."),
      ElementsAre("attention.qkv.weight [128, 64] int4",
                  "attention.qkv.weights_scaling_factor [128, 2] float32",
                  "attention.qkv.zero [128, 2] float32", "attention.dense.weight [64, 64] float32",
                  "mlp.fc.weight [96, 64] float32", "mlp.gate.weight [96, 64] float32",
                  "mlp.proj.weight [64, 96] float32"));
  EXPECT_THAT(SlotLines(config, "layers.1.mlp.proj."),
              ElementsAre("weight [64, 96] int8", "weights_scaling_factor [64, 6] float32"));
  // The second stage's layer is the model's layer 1.
  ModelConfig stage = config;
  stage.part = {.pp_rank = 1, .pp_size = 2, .first_layer = 1, .num_layers = 2, .num_kv_heads = 2};
  stage.num_layers = 1;
  EXPECT_EQ(SlotLines(stage, "layers.0."), SlotLines(config, "layers.1."));
}

// On the CPU as ops::PackScales has them: panels of 64 rows.
TEST(LinearForm, ScalesAreBoundBesideTheirWeights) {
  ModelConfig config = GroupedLlama();
  config.has_zero_point = true;
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    DecoderWeights weights;
    std::byte data[3];
    int n = 0;
    for (const WeightSlot& slot : WeightSlots(config, weights)) {
      if (slot.name.find("layers.0.mlp.proj") == std::string::npos) continue;
      EXPECT_EQ(StoredBytes(config, slot, device),
                slot.kind == WeightSlot::Kind::kMatrix
                    ? ops::WeightBytes(DType::kI4, StoredLayout(config, slot, device), 64, 96)
                    : static_cast<uint64_t>(
                          ops::NumScales(ops::CpuWeightLayout(DType::kI4), 64, 96, 32)) *
                          sizeof(float));
      Bind(config, slot, device, &data[n++]);
    }
    ASSERT_EQ(n, 3);
    const ops::Weight& proj = weights.layers[0].proj;
    EXPECT_EQ(proj.data, &data[0]);
    EXPECT_EQ(static_cast<const void*>(proj.scales), &data[1]);
    EXPECT_EQ(static_cast<const void*>(proj.offsets), &data[2]);
    EXPECT_EQ(proj.group_size, 32);
  }
}

TEST(LinearForm, StandsInCheckpointsByUpstreamsNames) {
  ModelConfig groups = GroupedLlama();
  groups.has_zero_point = true;
  const json written = ConfigToCheckpoint(groups);
  EXPECT_EQ(written["quantization"], (json{{"quant_algo", "W4A16_GPTQ"},
                                           {"kv_cache_quant_algo", nullptr},
                                           {"group_size", 32},
                                           {"has_zero_point", true}}));
  EXPECT_EQ(written["disable_weight_only_quant_plugin"], true);
  ModelConfig rows = GroupedLlama(QuantAlgo::kW8A16Gptq, 0);
  rows.has_zero_point = true;
  EXPECT_EQ(ConfigToCheckpoint(rows)["quantization"]["group_size"], -1);
  for (const ModelConfig& config : {groups, rows, MixedLlama()}) {
    const auto read = ConfigFromCheckpoint(ConfigToCheckpoint(config), "config.json");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->quant_algo, config.quant_algo);
    EXPECT_EQ(read->group_size, config.group_size);
    EXPECT_EQ(read->has_zero_point, config.has_zero_point);
    EXPECT_EQ(read->slot_forms, config.slot_forms);
  }
  json awq = written;
  awq["quantization"] = {
      {"quant_algo", "W4A16_AWQ"}, {"group_size", 16}, {"pre_quant_scale", false}};
  const auto read = ConfigFromCheckpoint(awq, "config.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->quant_algo, QuantAlgo::kW4A16Gptq);
  EXPECT_EQ(read->group_size, 16);
}

TEST(LinearForm, WhatDoesNotFitIsRefusedByName) {
  const auto error = [](const json& quantization) {
    json object = ConfigToCheckpoint(GroupedLlama(QuantAlgo::kNone));
    object["quantization"] = quantization;
    return ConfigFromCheckpoint(object, "config.json").status().message();
  };
  EXPECT_THAT(error({{"quant_algo", "W4A16_AWQ"}, {"pre_quant_scale", true}}),
              HasSubstr("pre_quant_scale: got true"));
  EXPECT_THAT(error({{"quant_algo", "W4A16"}, {"has_zero_point", true}}),
              HasSubstr("has_zero_point: got true"));
  EXPECT_THAT(error({{"quant_algo", "W4A16_GPTQ"}, {"group_size", 0}}),
              HasSubstr("group_size: got 0"));
  EXPECT_THAT(error({{"quant_algo", "W4A16_GPTQ"}, {"group_size", 24}}),
              HasSubstr("group_size: got 24, only multiples of 16"));
  EXPECT_THAT(error({{"quant_algo", "W4A16_GPTQ"}}),
              HasSubstr("group_size: got 128, hidden_size 64 is no multiple of it"));
  EXPECT_THAT(error({{"quant_algo", "W4A16_GPTQ"}, {"group_size", -1}}),
              HasSubstr("which is a scale for each row: quant_algo W4A16"));
  const auto mixed = [&](const std::string& name, const json& form) {
    return error({{"quant_algo", "MIXED_PRECISION"}, {"quantized_layers", {{name, form}}}});
  };
  const json int4 = {{"quant_algo", "W4A16_GPTQ"}, {"group_size", 32}};
  EXPECT_THAT(error({{"quant_algo", "MIXED_PRECISION"}}),
              HasSubstr("quantized_layers: is missing"));
  EXPECT_THAT(mixed("transformer.layers.2.mlp.proj", int4),
              HasSubstr("quantized_layers: got 1 linears, 0 of them are the model's"));
  EXPECT_THAT(mixed("transformer.layers.0.mlp.gate", int4),
              HasSubstr("transformer.layers.0.mlp.gate: are of two forms"));
  EXPECT_THAT(mixed("transformer.layers.0.mlp.proj", {{"quant_algo", "FP8"}}),
              HasSubstr("quant_algo: got 'FP8'"));
  EXPECT_THAT(mixed("transformer.layers.0.mlp.proj", 4), HasSubstr("got 4, an object is needed"));
  EXPECT_THAT(
      mixed("transformer.layers.0.mlp.proj", {{"quant_algo", "W4A16_GPTQ"}, {"group_size", 64}}),
      HasSubstr("group_size: got 64, columns of transformer.layers.0.mlp.proj 96"));
}

TEST(LinearForm, ExpertsInIntegersOfPartsOfSlabsAreTheCpusAlone) {
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  config.dtype = DType::kBF16;
  config.num_experts = 4;
  config.experts_per_token = 2;
  config.expert_intermediate_size = 64;
  config.slot_forms = {
      {"transformer.layers.0.attention.qkv", {.dtype = DType::kI4, .group_size = 32}}};
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
    EXPECT_EQ(CheckSupported(config, FactsOf(device)), Status::Ok());
  config.slot_forms["transformer.layers.1.mlp.fc"] = {.dtype = DType::kI8, .group_size = 16};
  EXPECT_EQ(Validate(config), Status::Ok());
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
    EXPECT_EQ(CheckSupported(config, FactsOf(device)), Status::Ok());
  config.slot_forms["transformer.layers.0.mlp.fc"] = {.dtype = DType::kI4, .group_size = 16};
  EXPECT_EQ(Validate(config), Status::Ok());
  EXPECT_EQ(CheckSupported(config, FactsOf(DeviceKind::kCpu)), Status::Ok());
  EXPECT_THAT(CheckSupported(config, FactsOf(DeviceKind::kCuda)).message(),
              HasSubstr("quant_algo: got MIXED_PRECISION for target cuda"));
}

TEST(LinearForm, Fp8InGroupsIsComputedBesideBfloat16Everywhere) {
  constexpr const char* kDense = "transformer.layers.0.attention.dense";
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  config.dtype = DType::kBF16;
  config.hidden_size = 128;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 64;
  config.slot_forms = {{kDense, {.dtype = DType::kF8E4M3, .group_size = kFp8GroupSize}}};
  ASSERT_EQ(Validate(config), Status::Ok());
  EXPECT_EQ(QuantizationNote(config), "FP8 weights in groups of 128; activations are not rounded");
  for (const DeviceKind device : {DeviceKind::kCuda, DeviceKind::kCpu})
    EXPECT_EQ(CheckSupported(config, FactsOf(device)), Status::Ok());
  config.dtype = DType::kF16;
  EXPECT_EQ(CheckSupported(config, FactsOf(DeviceKind::kCuda)), Status::Ok());
  EXPECT_THAT(
      CheckSupported(config, FactsOf(DeviceKind::kCpu)).message(),
      HasSubstr("quantized_layers: got FP8 in groups beside dtype float16 for target cpu, which "
                "supports FP8 in groups beside bfloat16; use --dtype bfloat16"));
  config.dtype = DType::kBF16;
  EXPECT_EQ(ActivationDType(config, DeviceKind::kCpu), DType::kBF16);
  EXPECT_EQ(LinearScratchBytes(config, 3), 0U);
  // Activations, and the workspace that weights are widened into, are those of integers.
  EXPECT_EQ(ActivationDType(config, DeviceKind::kCuda), DType::kBF16);
  EXPECT_EQ(KernelShape(config).weight_dtype, DType::kI8);
  const auto read = ConfigFromCheckpoint(ConfigToCheckpoint(config), "config.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->slot_forms, config.slot_forms);
  DecoderWeights weights;
  for (const WeightSlot& slot : WeightSlots(config, weights)) {
    if (!slot.name.starts_with(kDense)) continue;
    const bool is_scales = slot.kind == WeightSlot::Kind::kScales;
    EXPECT_EQ(slot.shape, is_scales ? (Shape{128, 1}) : (Shape{128, 128})) << slot.name;
    for (const DeviceKind device : {DeviceKind::kCuda, DeviceKind::kCpu})
      EXPECT_EQ(StoredBytes(config, slot, device), is_scales ? 512U : 16384U);
  }
  config.slot_forms["transformer.layers.0.attention.qkv"] = {.dtype = DType::kI8, .group_size = 32};
  EXPECT_EQ(QuantizationNote(config),
            "FP8 weights in groups of 128; int8 weights in groups of 32; the CPU rounds "
            "activations to int8, a scale per token and group; a GPU does not; those of FP8 are "
            "not rounded");
  config.slot_forms[kDense].group_size = 64;
  EXPECT_THAT(Validate(config).message(), HasSubstr("FP8 in groups is of groups of 128"));
}

TEST(LinearForm, NotesSayWhatIsComputed) {
  ModelConfig config = GroupedLlama();
  config.has_zero_point = true;
  EXPECT_EQ(QuantizationNote(config),
            "int4 weights in groups of 32 with zero points; the CPU rounds activations to int8, a "
            "scale per token and group; a GPU does not");
  config.quant_algo = QuantAlgo::kW4A16;
  EXPECT_EQ(QuantizationNote(config),
            "int4 weights, a scale per output channel; the CPU rounds activations to int8, a scale "
            "per token; a GPU does not");
  config = GroupedLlama(QuantAlgo::kW8A16Gptq, 0);
  config.has_zero_point = true;
  EXPECT_THAT(QuantizationNote(config),
              HasSubstr("int8 weights with a scale and a zero point per output channel"));
}

// Rows padded to 64 bytes, a scale and a sum for each group: of int8 in groups of 16 the most.
TEST(LinearForm, TheScratchHoldsEveryFormsActivations) {
  EXPECT_EQ(LinearScratchBytes(GroupedLlama(QuantAlgo::kNone), 3), 0U);
  EXPECT_EQ(LinearScratchBytes(GroupedLlama(), 3), 3U * (192 + 3 * 8));
  EXPECT_EQ(LinearScratchBytes(MixedLlama(), 3), 3U * (192 + 6 * 8));
}

// Q4_K's blocks: of eight groups of 32 two bytes and eight, which the CPU alone multiplies by.
TEST(LinearForm, ScalesInBlocksAreBytesBehindTheirMatrices) {
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  config.intermediate_size = 512;
  const LinearForm form = {.dtype = DType::kI4,
                           .group_size = 32,
                           .has_offsets = true,
                           .blocks = {.groups = 8, .middle = 8}};
  const std::string proj = "transformer.layers.1.mlp.proj";
  config.slot_forms = {{proj, form}};
  ASSERT_EQ(Validate(config), Status::Ok());
  EXPECT_THAT(SlotLines(config, "layers.1.mlp.proj."),
              ElementsAre("weight [64, 512] int4", "weights_scaling_factor [64, 20] uint8",
                          "zero [64, 20] uint8"));
  EXPECT_EQ(FormOf(*ConfigFromCheckpoint(ConfigToCheckpoint(config), "config.json"), proj), form);
  EXPECT_EQ(CheckSupported(config, FactsOf(DeviceKind::kCpu)), Status::Ok());
  config.dtype = DType::kBF16;
  EXPECT_THAT(CheckSupported(config, FactsOf(DeviceKind::kCuda)).message(),
              HasSubstr("scale_blocks: got blocks of scales for target cuda"));

  DecoderWeights weights;
  std::vector<std::byte> data(3);
  for (const WeightSlot& slot : WeightSlots(config, weights))
    if (slot.name.starts_with(proj)) {
      std::byte* place = data.data();
      if (slot.kind != WeightSlot::Kind::kMatrix)
        place += slot.kind == WeightSlot::Kind::kScales ? 1 : 2;
      Bind(config, slot, DeviceKind::kCpu, place);
      EXPECT_EQ(DataOf(slot), place);
    }
  const ops::Weight& weight = weights.layers[1].proj;
  EXPECT_EQ(weight.group_size, 32);
  EXPECT_EQ(weight.blocks, form.blocks);
  EXPECT_EQ(weight.scales, nullptr);
  EXPECT_EQ(weight.offsets, nullptr);
  EXPECT_EQ(static_cast<const void*>(weight.scale_blocks), &data[1]);
  EXPECT_EQ(static_cast<const void*>(weight.offset_blocks), &data[2]);
}

TEST(LinearForm, ScalesInBlocksThatDoNotFitAreNamed) {
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  const std::string qkv = "transformer.layers.0.attention.qkv";
  const auto refusal = [&](const LinearForm& form) {
    config.slot_forms = {{qkv, form}};
    return Validate(config).message();
  };
  EXPECT_EQ(refusal({.dtype = DType::kI8, .group_size = 16, .blocks = {.groups = 4}}), "");
  EXPECT_THAT(refusal({.dtype = DType::kI8, .group_size = 16, .blocks = {.groups = 3}}),
              HasSubstr(qkv + ": scale_blocks: got blocks of 3 groups of 16, of 64 columns; they"));
  EXPECT_THAT(refusal({.dtype = DType::kI8, .blocks = {.groups = 1}}),
              HasSubstr("scale_blocks: got blocks of 1 groups of 0"));
  EXPECT_THAT(refusal({.dtype = DType::kF4E2M1, .group_size = 32, .blocks = {.groups = 1}}),
              HasSubstr("scale_blocks: got"));
  EXPECT_THAT(
      refusal({.dtype = DType::kI4, .group_size = 32, .blocks = {.groups = 1}, .has_order = true}),
      HasSubstr("of 64 columns with desc_act;"));
  nlohmann::json json = ConfigToCheckpoint(GroupedLlama(QuantAlgo::kMixedPrecision, 0));
  for (const auto& [blocks, words] :
       {std::pair<nlohmann::json, const char*>{{{"groups", 0}}, "scale_blocks: groups: got 0"},
        {{{"groups", 17}}, "groups: got 17"},
        {{{"groups", 1}, {"middle", 129}}, "middle: got 129"},
        {5, "scale_blocks: "}}) {
    json["quantization"]["quantized_layers"] = {
        {qkv, {{"quant_algo", "W4A16_GPTQ"}, {"group_size", 32}, {"scale_blocks", blocks}}}};
    EXPECT_THAT(ConfigFromCheckpoint(json, "config.json").status().message(), HasSubstr(words));
  }
}

TEST(LinearForm, OrdersHaveEachColumnOnce) {
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  const LinearForm ordered = {.dtype = DType::kI4, .group_size = 32, .has_order = true};
  config.slot_forms = {{"transformer.layers.1.mlp.fc", ordered},
                       {"transformer.layers.1.mlp.gate", ordered}};
  ASSERT_EQ(Validate(config), Status::Ok());
  EXPECT_EQ(FormOf(*ConfigFromCheckpoint(ConfigToCheckpoint(config), "config.json"),
                   "transformer.layers.1.mlp.gate"),
            ordered);
  EXPECT_THAT(CheckSupported(config, FactsOf(DeviceKind::kCpu)).message(), "");
  config.dtype = DType::kBF16;
  EXPECT_THAT(CheckSupported(config, FactsOf(DeviceKind::kCuda)).message(),
              HasSubstr("desc_act: got true for target cuda"));
  DecoderWeights weights;
  std::vector<int32_t> fc(64), gate(64);
  for (int i = 0; i < 64; ++i) fc[static_cast<size_t>(i)] = gate[static_cast<size_t>(i)] = 63 - i;
  const std::vector<WeightSlot> slots = WeightSlots(config, weights);
  std::vector<std::byte> data(1);
  for (const WeightSlot& slot : slots) {
    if (slot.kind != WeightSlot::Kind::kOrder) continue;
    EXPECT_EQ(slot.shape, (Shape{64}));
    EXPECT_EQ(StoredDType(config, slot), DType::kI32);
    EXPECT_EQ(StoredBytes(config, slot, DeviceKind::kCpu), 256U);
    Bind(config, slot, DeviceKind::kCpu,
         slot.name.find("gate") == std::string::npos ? fc.data() : gate.data());
  }
  EXPECT_EQ(weights.layers[1].gate.order, gate.data());
  EXPECT_EQ(CheckOrders(slots), Status::Ok());
  std::swap(gate[0], gate[1]);
  EXPECT_THAT(CheckOrders(slots).message(), HasSubstr("mlp.gate.column_order: is not that of"));
  gate = fc;
  for (const int32_t bad : {-1, 64, 5}) {
    fc[3] = gate[3] = bad;
    EXPECT_THAT(CheckOrders(slots).message(),
                HasSubstr("column_order: got column " + std::to_string(bad)));
  }
}

// A rank's part has further columns, which are of no column of x.
TEST(LinearForm, OrdersOfPartsHaveEachColumnOfXOnce) {
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  const char* const proj = "transformer.layers.1.mlp.proj";
  config.slot_forms = {{proj,
                        {.dtype = DType::kI4,
                         .group_size = 16,
                         .has_offsets = true,
                         .has_order = true,
                         .columns = 128}}};
  ASSERT_EQ(Validate(config), Status::Ok());
  EXPECT_EQ(LinearScratchBytes(config, 3), 3U * (192 + 8 * 8));
  DecoderWeights weights;
  std::vector<int32_t> order(128, ops::kNoColumn);
  for (int i = 0; i < 96; ++i) order[static_cast<size_t>(i + i / 3)] = 95 - i;
  const std::vector<WeightSlot> slots = WeightSlots(config, weights);
  std::vector<std::byte> data(1);
  for (const WeightSlot& slot : slots) {
    if (!slot.name.starts_with(proj)) continue;
    if (slot.kind == WeightSlot::Kind::kMatrix) {
      EXPECT_EQ(slot.shape, (Shape{64, 128}));
      Bind(config, slot, DeviceKind::kCpu, data.data());
    } else if (slot.kind == WeightSlot::Kind::kOrder) {
      EXPECT_EQ(slot.shape, (Shape{128}));
      Bind(config, slot, DeviceKind::kCpu, order.data());
    } else {
      EXPECT_EQ(slot.shape, (Shape{64, 8})) << slot.name;
    }
  }
  EXPECT_EQ(weights.layers[1].proj.in_features, 128);
  EXPECT_EQ(weights.layers[1].proj.x_features(), 96);
  EXPECT_EQ(weights.layers[1].proj.group_size, 16);
  EXPECT_EQ(CheckOrders(slots), Status::Ok());
  std::swap(order[0], order[3]);  // 95 and none
  EXPECT_EQ(CheckOrders(slots), Status::Ok());
  order[3] = ops::kNoColumn;
  EXPECT_THAT(CheckOrders(slots).message(), HasSubstr("column_order: got column -1"));
  for (const int32_t bad : {96, 5, -2}) {
    order[3] = bad;
    EXPECT_THAT(CheckOrders(slots).message(),
                HasSubstr("column_order: got column " + std::to_string(bad)));
  }
}

// gpt-oss-20b as it is published: experts in MXFP4, the rest in bfloat16. By hand, 24 layers of
//   32 * 3 * 2880^2 weights of experts in 4 bits and a byte for each 32
//   2880 * (4096 + 1024) + 4096 * 2880 of attention, and the router, 64 rows with its padding, in
//   16 bits
//   32 * 3 * 2880 + 32 + 5120 + 2880 biases, 64 sinks and 2 * 2880 norms in float32
// and two tables of 201088 * 2880, and a norm.
TEST(LinearForm, GptOssTakesLittleMoreThanItsFile) {
  ModelConfig config = GroupedLlama(QuantAlgo::kMixedPrecision, 0);
  config.dtype = DType::kBF16;
  config.vocab_size = 201088;
  config.hidden_size = 2880;
  config.num_layers = 24;
  config.num_heads = 64;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.intermediate_size = config.expert_intermediate_size = 2880;
  config.num_experts = 32;
  config.experts_per_token = 4;
  config.qkv_bias = config.dense_bias = true;
  config.tied_embeddings = false;
  config.has_attention_sinks = config.has_expert_biases = true;
  for (int layer = 0; layer < 24; ++layer)
    for (const char* name : {"mlp.fc", "mlp.proj"})
      config.slot_forms[fmt::format("transformer.layers.{}.{}", layer, name)] = {
          .dtype = DType::kF4E2M1, .group_size = kMxGroupSize};
  ASSERT_EQ(Validate(config), Status::Ok());
  EXPECT_FALSE(HasExpertsToWiden(config));
  DecoderWeights unused;
  uint64_t num_bytes = 0, gpu_bytes = 0;
  for (const WeightSlot& slot : WeightSlots(config, unused)) {
    num_bytes += StoredBytes(config, slot, DeviceKind::kCpu);
    gpu_bytes += StoredBytes(config, slot, DeviceKind::kCuda);
  }
  constexpr uint64_t kExperts = uint64_t{32} * 3 * 2880 * 2880;
  constexpr uint64_t kLayer = kExperts / 2 + kExperts / 32 +
                              uint64_t{2} * (2880 * 5120 + 4096 * 2880 + 64 * 2880) +
                              uint64_t{4} * (32 * 3 * 2880 + 32 + 5120 + 2880 + 64 + 2 * 2880);
  constexpr uint64_t kTables = uint64_t{2} * 2 * 201088 * 2880 + uint64_t{4} * 2880;
  EXPECT_EQ(num_bytes, 24 * kLayer + kTables);
  // Where the router's 32 rows are not padded.
  EXPECT_EQ(gpu_bytes, num_bytes - uint64_t{24} * 2 * 32 * 2880);
  EXPECT_EQ(CheckSupported(config, FactsOf(DeviceKind::kCuda)), Status::Ok());
  EXPECT_NEAR(static_cast<double>(num_bytes), 13.8e9, 0.05e9);
}

}  // namespace
}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
#include "model/supported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/decoder.h"
#include "model/families/families.h"

namespace inflight::model {
namespace {

using testing::HasSubstr;

ModelConfig SmallModel(std::string_view architecture) {
  ModelConfig config = FamilyOf(architecture).value()->config;
  config.vocab_size = 100;
  config.hidden_size = 32;
  config.num_layers = 2;
  config.num_heads = config.num_kv_heads = 4;
  config.head_dim = 8;
  config.intermediate_size = 48;
  config.max_position_embeddings = 64;
  return config;
}

// Every field that not every backend computes: its name, value, backend and remedy.
TEST(CheckSupported, RefusesByName) {
  const auto error = [](auto&& change, DeviceKind device = DeviceKind::kCpu) {
    ModelConfig config = SmallModel("LlamaForCausalLM");
    config.dtype = DType::kBF16;
    change(config);
    EXPECT_TRUE(Validate(config).ok()) << Validate(config).ToString();
    const Status status = CheckSupported(config, FactsOf(device));
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
    return status.message();
  };
  const DeviceKind cuda = DeviceKind::kCuda;
  EXPECT_THAT(error(
                  [](auto& c) {
                    c.hidden_size = c.expert_intermediate_size = 64;
                    c.num_experts = 4;
                    c.experts_per_token = 2;
                    c.quant_algo = QuantAlgo::kW4A16;
                  },
                  cuda),
              HasSubstr("quant_algo: got W4A16 for target cuda, which supports experts in int8 and "
                        "int4 whose rows are multiples of 64 and 128, in groups of a power of two; "
                        "use another --group-size"));
  const auto float32_error = [&](auto&& change) {
    return error(
        [&](auto& c) {
          c.dtype = DType::kF32;
          change(c);
        },
        cuda);
  };
  EXPECT_THAT(
      float32_error([](auto& c) { c.quant_algo = QuantAlgo::kW8A16; }),
      HasSubstr("quant_algo: got W8A16 beside dtype float32 for target cuda, which supports "
                "float32 beside weights in float32; use --dtype bfloat16, or --quant-algo "
                "none"));
  EXPECT_THAT(float32_error([](auto& c) { c.fp8_kv_cache = true; }),
              HasSubstr("kv_cache_quant_algo: got FP8 beside dtype float32 for target cuda"));
  EXPECT_THAT(
      float32_error([](auto& c) { c.part.tp_size = 2; }),
      HasSubstr("dtype: got float32 on 2 ranks for target cuda, whose ranks add up bfloat16 "
                "and float16; use --dtype bfloat16, one rank, or cpu"));
  EXPECT_THAT(error([](auto& c) { c.quant_algo = QuantAlgo::kFp8PerChannelPerToken; }),
              HasSubstr("quant_algo: got FP8_PER_CHANNEL_PER_TOKEN for target cpu, which supports "
                        "weights in float32"));
  EXPECT_THAT(error([](auto& c) { c.fp8_kv_cache = true; }),
              HasSubstr("kv_cache_quant_algo: got FP8 for target cpu"));
}

TEST(CheckSupported, AcceptsWhatFamiliesDifferInOnBothBackends) {
  const auto accepts = [](auto&& change) {
    ModelConfig config = SmallModel("LlamaForCausalLM");
    config.dtype = DType::kBF16;
    change(config);
    EXPECT_TRUE(Validate(config).ok()) << Validate(config).ToString();
    for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
      EXPECT_EQ(CheckSupported(config, FactsOf(device)), Status::Ok());
  };
  for (const auto& [algo, group_size] :
       {std::pair{QuantAlgo::kW8A16, 0}, std::pair{QuantAlgo::kW4A16, 0},
        std::pair{QuantAlgo::kW8A16Gptq, 16}, std::pair{QuantAlgo::kW4A16Gptq, 128}})
    accepts([&](auto& c) {
      c.hidden_size = c.intermediate_size = c.expert_intermediate_size = 128;
      c.head_dim = c.hidden_size / c.num_heads;
      c.num_experts = 4;
      c.experts_per_token = 2;
      c.quant_algo = algo;
      c.group_size = group_size;
    });
  accepts([](auto& c) { c.norm_placement = NormPlacement::kBoth; });
  accepts([](auto& c) { c.norm_placement = NormPlacement::kPost; });
  accepts([](auto& c) { c.parallel_residual = true; });
  accepts([](auto& c) { c.head_bias = true; });
  accepts([](auto& c) { c.embedding_scale = 8; });
  accepts([](auto& c) { c.residual_multiplier = 0.5F; });
  accepts([](auto& c) { c.attention_softcap = 50; });
  accepts([](auto& c) { c.has_attention_sinks = true; });
  accepts([](auto& c) { c.logits_softcap = 30; });
  accepts([](auto& c) { c.logits_scale = 0.5F; });
  accepts([](auto& c) { c.rope_layers = {true, false}; });
  accepts([](auto& c) { c.qk_norm = c.has_wide_qk_norm = true; });
  accepts([](auto& c) {
    c.sliding_window = 8;
    c.sliding_rope_theta = 5000;
  });
}

// A width of dense layers is in the config.json of models that have none.
TEST(CheckSupported, WidthsThatNoLayerHasAreNotAskedFor) {
  ModelConfig config = SmallModel("LlamaForCausalLM");
  config.dtype = DType::kBF16;
  config.hidden_size = config.expert_intermediate_size = 128;
  config.num_experts = 4;
  config.experts_per_token = 2;
  config.intermediate_size = 36;
  for (const QuantAlgo algo : {QuantAlgo::kNone, QuantAlgo::kFp8PerChannelPerToken}) {
    config.quant_algo = algo;
    config.dense_layers = {};
    EXPECT_EQ(Validate(config), Status::Ok());
    EXPECT_EQ(KernelShape(config).intermediate_size, 0);
    EXPECT_EQ(KernelShape(config).hidden_size, 128);
    config.dense_layers = {false, true};
    EXPECT_EQ(KernelShape(config).intermediate_size, 36);
  }
  EXPECT_THAT(Validate(config).message(),
              HasSubstr("intermediate_size: got 36, with FP8 weights only multiples of 16"));
}

TEST(CheckSupported, AcceptsEveryFloatDTypeOnBothBackends) {
  for (ModelConfig config : {SmallModel("LlamaForCausalLM"), SmallModel("GPT2LMHeadModel")})
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      config.dtype = dtype;
      for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
        EXPECT_TRUE(CheckSupported(config, FactsOf(device)).ok());
    }
}

}  // namespace
}  // namespace inflight::model

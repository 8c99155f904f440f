// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/config_json.h"
#include "model/decoder.h"
#include "model/decoder_workspace.h"
#include "model/families/families.h"
#include "model/limits.h"
#include "model/rope.h"
#include "model/weight_slots.h"

namespace inflight::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig TinyLlama() {
  ModelConfig config = (*FamilyOf("LlamaForCausalLM"))->config;
  config.vocab_size = 100;
  config.hidden_size = 32;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.intermediate_size = 48;
  config.max_position_embeddings = 64;
  return config;
}

ModelConfig TinyGpt2() {
  ModelConfig config = TinyLlama();
  const ModelConfig family = (*FamilyOf("GPT2LMHeadModel"))->config;
  config.architecture = family.architecture;
  config.norm = family.norm;
  config.activation = family.activation;
  config.gated_mlp = family.gated_mlp;
  config.qkv_bias = config.dense_bias = config.mlp_bias = true;
  config.position = family.position;
  config.num_kv_heads = 4;
  config.tied_embeddings = true;
  return config;
}

TEST(Validate, AcceptsBothFamilies) {
  EXPECT_TRUE(Validate(TinyLlama()).ok()) << Validate(TinyLlama()).ToString();
  EXPECT_TRUE(Validate(TinyGpt2()).ok()) << Validate(TinyGpt2()).ToString();
}

TEST(Validate, NamesTheFieldAndItsBound) {
  const auto error = [](auto&& change) {
    ModelConfig config = TinyLlama();
    change(config);
    return Validate(config).message();
  };
  EXPECT_EQ(error([](auto& c) { c.vocab_size = 0; }),
            "vocab_size: got 0, a number from 1 to 16777216 is needed");
  EXPECT_THAT(error([](auto& c) { c.head_dim = 12; }), HasSubstr("only multiples of 8"));
  EXPECT_THAT(error([](auto& c) { c.num_kv_heads = 3; }), HasSubstr("num_kv_heads: got 3"));
  EXPECT_THAT(error([](auto& c) { c.num_kv_heads = 8; }), HasSubstr("num_kv_heads: got 8"));
  EXPECT_THAT(error([](auto& c) { c.dtype = DType::kF64; }), HasSubstr("dtype: got float64"));
  EXPECT_THAT(error([](auto& c) { c.norm_eps = NAN; }), HasSubstr("norm_eps"));
  EXPECT_THAT(error([](auto& c) { c.rope_theta = -1; }), HasSubstr("rope_theta"));
  EXPECT_THAT(error([](auto& c) { c.rotary_fraction = 1.5; }),
              HasSubstr("partial_rotary_factor (rotary_pct): got 1.5, a number above 0 up to 1"));
  EXPECT_THAT(error([](auto& c) { c.rotary_fraction = 0.4; }), HasSubstr("an even number"));
  EXPECT_THAT(error([](auto& c) { c.embedding_scale = 0; }), HasSubstr("embedding_scale: got 0"));
  EXPECT_THAT(error([](auto& c) { c.logits_softcap = -1; }), HasSubstr("logits_softcap: got -1"));
  EXPECT_THAT(error([](auto& c) {
                c.sliding_layers = {true, false};
              }),
              HasSubstr("sliding_window: is missing"));
  EXPECT_THAT(error([](auto& c) { c.rope_layers = {false}; }),
              HasSubstr("no_rope_layers: got 1, the model has 2 layers"));
  EXPECT_THAT(error([](auto& c) { c.sliding_layers = {false}; }),
              HasSubstr("layer_types: got 1, the model has 2 layers"));
  EXPECT_THAT(
      error([](auto& c) { c.rope_scaling = {.kind = RopeScaling::Kind::kDynamic, .factor = -1}; }),
      HasSubstr("rope_scaling: factor: got -1"));
  EXPECT_THAT(error([](auto& c) {
                c.rope_scaling = {.kind = RopeScaling::Kind::kLlama3, .low_freq_factor = 4.0};
              }),
              HasSubstr("low_freq_factor"));
}

TEST(CheckpointConfig, RoundTripsBothFamilies) {
  ModelConfig llama = TinyLlama();
  llama.rope_scaling = {.kind = RopeScaling::Kind::kLlama3,
                        .factor = 32,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_max_position_embeddings = 8192};
  llama.rope_theta = 500000;
  llama.end_ids = {7, 9};
  llama.bos_id = 1;
  llama.qkv_bias = llama.dense_bias = true;
  llama.rotary_fraction = 0.5;
  for (const ModelConfig& config : {llama, TinyGpt2()}) {
    const nlohmann::json json = ConfigToCheckpoint(config);
    const auto read = ConfigFromCheckpoint(json, "config.json");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(ConfigToCheckpoint(*read), json);
    EXPECT_EQ(read->end_ids, config.end_ids);
    EXPECT_EQ(read->bos_id, config.bos_id);
    EXPECT_EQ(read->gated_mlp, config.gated_mlp);
    EXPECT_EQ(read->rope_scaling.factor, config.rope_scaling.factor);
    EXPECT_EQ(read->rotary_fraction, config.rotary_fraction);
  }
}

// The fields of config.json as a converter of TensorRT-LLM 0.11 fills them.
TEST(CheckpointConfig, ReadsWhatUpstreamWrites) {
  const auto json = nlohmann::json::parse(R"({
    "architecture": "GPTForCausalLM", "dtype": "float16", "logits_dtype": "float32",
    "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12,
    "hidden_size": 768, "intermediate_size": 3072, "hidden_act": "gelu_new",
    "norm_epsilon": 1e-05, "vocab_size": 50257, "max_position_embeddings": 1024,
    "position_embedding_type": "learned_absolute", "use_parallel_embedding": false,
    "embedding_sharding_dim": 0, "share_embedding_table": false, "gpt_variant": "gpt2",
    "bias": true, "q_scaling": 1.0, "moe": null, "apply_query_key_layer_scaling": false,
    "rotary_pct": 1.0, "rotary_base": 10000.0, "rotary_scaling": null,
    "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
    "quantization": {"quant_algo": null, "kv_cache_quant_algo": null, "group_size": 128}})");
  const auto config = ConfigFromCheckpoint(json, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->architecture, "GPT2LMHeadModel");
  EXPECT_EQ(config->dtype, DType::kF16);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->activation, ops::ActivationKind::kGeluTanh);
  EXPECT_TRUE(config->qkv_bias && config->dense_bias);
  EXPECT_FALSE(config->tied_embeddings);
}

// docs/reference/artifacts.md: names that select the graph of Llama.
TEST(CheckpointConfig, ArchitecturesOfOneGraphAreOneFamily) {
  nlohmann::json json = ConfigToCheckpoint(TinyLlama());
  for (const char* name : {"InternLMForCausalLM", "SkyworkForCausalLM"}) {
    json["architecture"] = name;
    const auto config = ConfigFromCheckpoint(json, "config.json");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  }
}

// Upstream's checkpoints of Mistral say nothing of a window.
TEST(CheckpointConfig, MistralHasAWindowWhereItSaysSo) {
  nlohmann::json json = ConfigToCheckpoint(TinyLlama());
  json["architecture"] = "MistralForCausalLM";
  const auto without = ConfigFromCheckpoint(json, "config.json");
  ASSERT_TRUE(without.ok()) << without.status().ToString();
  EXPECT_EQ(without->architecture, "MistralForCausalLM");
  EXPECT_EQ(without->sliding_window, 0);
  json["sliding_window"] = 48;
  json["layer_types"] = {"sliding_attention", "full_attention"};
  const auto with = ConfigFromCheckpoint(json, "config.json");
  ASSERT_TRUE(with.ok()) << with.status().ToString();
  EXPECT_EQ(WindowOf(*with, 0), 48);
  EXPECT_EQ(WindowOf(*with, 1), 0);
  EXPECT_EQ(ConfigToCheckpoint(*with)["layer_types"], json["layer_types"]);
}

// TensorRT-LLM computes every "gelu" by the tanh form (tensorrt_llm/functional.py), so the exact
// one has a name of ours.
TEST(CheckpointConfig, NamesOfGeluMeanTheTanhForm) {
  ModelConfig gpt2 = TinyGpt2();
  nlohmann::json json = ConfigToCheckpoint(gpt2);
  for (const char* name : {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"}) {
    json["hidden_act"] = name;
    EXPECT_EQ(ConfigFromCheckpoint(json, "config.json")->activation,
              ops::ActivationKind::kGeluTanh);
  }
  gpt2.activation = ops::ActivationKind::kGelu;
  json = ConfigToCheckpoint(gpt2);
  EXPECT_EQ(json["hidden_act"], "gelu_erf");
  EXPECT_EQ(ConfigFromCheckpoint(json, "config.json")->activation, ops::ActivationKind::kGelu);
}

// The base of dynamic scaling changes with the length, so cached keys would not fit the next ones.
TEST(Limits, DynamicRopeEndsAtTheTrainedLength) {
  ModelConfig config = TinyLlama();
  config.rope_scaling = {.kind = RopeScaling::Kind::kDynamic, .factor = 4.0};
  const auto read = ConfigFromCheckpoint(ConfigToCheckpoint(config), "config.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->rope_scaling.kind, RopeScaling::Kind::kDynamic);
  EXPECT_EQ(read->rope_scaling.factor, 4.0);
  const int trained = config.max_position_embeddings;
  EXPECT_EQ(ResolveLimits(*read, {})->max_seq_len, trained);
  const Status status = ResolveLimits(*read, {.max_seq_len = trained + 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("max_seq_len: got " + std::to_string(trained + 1) +
                                          ", the model's rope_scaling is dynamic"));
  ModelConfig plain = config;
  plain.rope_scaling = {};
  EXPECT_EQ(InverseFrequencies(config), InverseFrequencies(plain));
}

TEST(CheckpointConfig, RefusesByNameWhatIsNotSupported) {
  const auto error = [](const char* field, nlohmann::json value) {
    nlohmann::json json = ConfigToCheckpoint(TinyLlama());
    json[field] = std::move(value);
    const Status status = ConfigFromCheckpoint(json, "config.json").status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
    return status.message();
  };
  EXPECT_THAT(error("architecture", "FuyuForCausalLM"), HasSubstr("FuyuForCausalLM"));
  EXPECT_THAT(error("quantization", {{"quant_algo", "NVFP4"}}),
              HasSubstr("quant_algo: got \"NVFP4\", only null, W8A16, W4A16, W8A16_GPTQ"));
  EXPECT_THAT(error("position_embedding_type", "alibi"), HasSubstr("alibi"));
  for (const char* type : {"su", "mrope"})
    EXPECT_THAT(error("rotary_scaling", {{"type", type}, {"factor", 2.0}}),
                HasSubstr(std::string("rotary_scaling: type \"") + type + "\" is not supported"));
  for (const char* kind : {"alibi_with_scale", "relative", "chatglm"})
    EXPECT_THAT(error("position_embedding_type", kind), HasSubstr(kind));
  EXPECT_THAT(error("hidden_act", "squared-relu"), HasSubstr("hidden_act"));
  EXPECT_THAT(error("qk_layernorm", true), HasSubstr("qk_layernorm"));
  EXPECT_THAT(error("q_scaling", 2.0), HasSubstr("q_scaling: got 2.0"));
  EXPECT_THAT(error("moe", {{"num_experts", 8}}), HasSubstr("moe"));
}

TEST(CheckpointConfig, SectionsThatCannotBeReadAreErrors) {
  const auto error = [](const char* field, nlohmann::json value) {
    nlohmann::json json = ConfigToCheckpoint(TinyLlama());
    json[field] = std::move(value);
    return ConfigFromCheckpoint(json, "config.json").status().message();
  };
  EXPECT_THAT(error("quantization", "W4A16"),
              HasSubstr("quantization: got \"W4A16\", an object is needed"));
  EXPECT_THAT(error("moe", 8), HasSubstr("moe: got 8, an object is needed"));
  EXPECT_THAT(error("moe", {{"num_experts", "8"}}), HasSubstr("moe: num_experts: got \"8\""));
}

// sqrt(3072) = 55.4256...; bfloat16 has 55.25 and 55.5 next to it.
TEST(EmbeddingScale, IsTheFieldOrARoundedRoot) {
  ModelConfig config = TinyLlama();
  config.hidden_size = 3072;
  config.embedding_scale = 12;
  EXPECT_EQ(EmbeddingScale(config), 12);
  config.has_root_embedding_scale = true;
  config.dtype = DType::kBF16;
  EXPECT_EQ(EmbeddingScale(config), 55.5F);
  config.dtype = DType::kF32;
  EXPECT_EQ(EmbeddingScale(config), std::sqrt(3072.0F));
}

TEST(Limits, DefaultsComeFromTheModelAndAreNeverMultiplied) {
  ModelConfig config = TinyLlama();
  config.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 8};
  const auto limits = ResolveLimits(config, {});
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits->max_seq_len, 64);
  EXPECT_EQ(limits->max_input_len, 64);
  EXPECT_EQ(limits->max_num_tokens, 8192);
  EXPECT_EQ(ResolveLimits(config, {.max_batch_size = 2})->max_num_tokens, 128);
  EXPECT_EQ(ResolveLimits(config, {.max_seq_len = 32, .max_input_len = 99})->max_input_len, 32);
}

TEST(Limits, NameTheValueAndTheBound) {
  EXPECT_THAT(ResolveLimits(TinyGpt2(), {.max_seq_len = 65}).status().message(),
              HasSubstr("max_seq_len: got 65, the model has 64 learned positions"));
  EXPECT_TRUE(ResolveLimits(TinyLlama(), {.max_seq_len = 65}).ok());
  EXPECT_THAT(ResolveLimits(TinyLlama(), {.max_batch_size = 0}).status().message(),
              HasSubstr("max_batch_size: got 0"));
  EXPECT_THAT(ResolveLimits(TinyLlama(), {.max_num_tokens = -5}).status().message(),
              HasSubstr("max_num_tokens: got -5"));
  EXPECT_THAT(ResolveLimits(TinyLlama(), {.max_beam_width = 257}).status().message(),
              HasSubstr("max_beam_width: got 257, a number from 1 to 256"));
  EXPECT_TRUE(ResolveLimits(TinyLlama(), {.max_beam_width = 256}).ok());
}

TEST(Limits, RoundTripThroughBuildConfig) {
  const EngineLimits limits = {.max_batch_size = 3,
                               .max_num_tokens = 77,
                               .max_seq_len = 60,
                               .max_input_len = 50,
                               .max_beam_width = 4};
  const auto read = LimitsFromJson(LimitsToJson(TinyLlama(), limits), "f");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->max_batch_size, 3);
  EXPECT_EQ(read->max_num_tokens, 77);
  EXPECT_EQ(read->max_seq_len, 60);
  EXPECT_EQ(read->max_input_len, 50);
  EXPECT_EQ(read->max_beam_width, 4);
  EXPECT_EQ(read->lora, LoraLimits{});
}

TEST(Limits, ModulesAndRankOfAdaptersStandInBuildConfig) {
  EngineLimits limits = {.max_seq_len = 60, .max_input_len = 50};
  limits.lora = {.modules = 0b10010, .max_rank = 8};
  nlohmann::json json = LimitsToJson(TinyLlama(), limits);
  EXPECT_EQ(json["lora_config"]["lora_target_modules"], nlohmann::json({"attn_q", "attn_dense"}));
  EXPECT_EQ(json["lora_config"]["max_lora_rank"], 8);
  EXPECT_EQ(LimitsFromJson(json, "f")->lora, limits.lora);
  json["lora_config"]["lora_target_modules"] = nlohmann::json::array();
  EXPECT_EQ(LimitsFromJson(json, "f")->lora.modules, LoraLimits{}.modules) << "none named";
  json["lora_config"]["lora_target_modules"] = {"attn_q", "moe_gate"};
  EXPECT_THAT(LimitsFromJson(json, "f").status().message(),
              HasSubstr("lora_target_modules: got \"moe_gate\", which is no module"));
}

TEST(Rope, LayersWithAWindowMayHaveTheirOwn) {
  ModelConfig config = TinyLlama();
  config.head_dim = 4;
  config.rope_theta = 10000;
  config.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 8};
  EXPECT_EQ(InverseFrequencies(OfSlidingRope(config)), InverseFrequencies(config));
  config.sliding_rope_theta = 100;
  EXPECT_THAT(InverseFrequencies(OfSlidingRope(config)), ElementsAre(1.0F, 0.1F));
}

// head_dim 4 and theta 100: 100^(-0/4) = 1 and 100^(-2/4) = 1/10.
TEST(Rope, PlainFrequenciesAndTable) {
  ModelConfig config = TinyLlama();
  config.head_dim = 4;
  config.rope_theta = 100;
  EXPECT_THAT(InverseFrequencies(config), ElementsAre(1.0F, 0.1F));
  float table[3 * 2 * 2];
  const auto device = Device::Cpu(1);
  ASSERT_TRUE(FillRopeTable(config, {table, DType::kF32, {3, 2, 2}}, *device).ok());
  EXPECT_THAT(std::vector<float>(table, table + 4), ElementsAre(1, 1, 0, 0));
  EXPECT_FLOAT_EQ(table[8], -0.41614684F);  // cos 2
  EXPECT_FLOAT_EQ(table[9], 0.98006658F);   // cos 0.2
  EXPECT_FLOAT_EQ(table[10], 0.90929743F);  // sin 2
  EXPECT_FLOAT_EQ(table[11], 0.19866933F);  // sin 0.2
}

TEST(Rope, LinearScalingDividesPositions) {
  ModelConfig config = TinyLlama();
  config.head_dim = 4;
  config.rope_theta = 100;
  config.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 4};
  EXPECT_THAT(InverseFrequencies(config), ElementsAre(0.25F, 0.025F));
}

// theta 10^6 over head_dim 8 gives 1, 10^-1.5, 10^-3, 10^-4.5: wavelengths 6.28, 198.7, 6283 and
// 198692. With original length 1024, low 1 and high 4, those below 256 stay, those above 1024 are
// divided by 8. theta 10^5 over head_dim 4: 10^-2.5 has wavelength 1986.9; with original length
// 4096 it is between 1024 and 4096: s = (4096/1986.92 - 1)/3 = 0.35383, so 10^-2.5 (0.64617/8 +
// 0.35383).
TEST(Rope, Llama3KeepsShortStretchesLongAndBlendsBetween) {
  ModelConfig config = TinyLlama();
  config.rope_theta = 1e6;
  config.rope_scaling = {.kind = RopeScaling::Kind::kLlama3,
                         .factor = 8,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_max_position_embeddings = 1024};
  const std::vector<float> scaled = InverseFrequencies(config);
  EXPECT_FLOAT_EQ(scaled[0], 1.0F);
  EXPECT_FLOAT_EQ(scaled[1], 0.031622777F);
  EXPECT_FLOAT_EQ(scaled[2], 0.000125F);
  EXPECT_FLOAT_EQ(scaled[3], 3.1622777e-5F / 8);

  config.head_dim = 4;
  config.rope_theta = 1e5;
  config.rope_scaling.original_max_position_embeddings = 4096;
  EXPECT_NEAR(InverseFrequencies(config)[1], 0.0031622777 * (0.64617 / 8 + 0.35383), 1e-7);
}

// theta 10^4 over head_dim 8 gives 10^-j. Over 4096 positions pair j turns 4096 / (2 pi) 10^-j
// times: 32 times at j = 1.30903, once at 2.81418. Rounded to 1 and 3, pairs 0 and 1 are kept, 3 is
// divided by 4, and 2 is half of each: 0.01 (0.5 / 4 + 0.5). As they are, 2 is 0.45907 of the way.
TEST(Rope, YarnKeepsWhatTurnsOftenAndStretchesTheRest) {
  ModelConfig config = TinyLlama();
  ASSERT_EQ(config.head_dim, 8);
  config.rope_theta = 1e4;
  config.rope_scaling = {
      .kind = RopeScaling::Kind::kYarn, .factor = 4, .original_max_position_embeddings = 4096};
  const std::vector<float> scaled = InverseFrequencies(config);
  EXPECT_FLOAT_EQ(scaled[0], 1.0F);
  EXPECT_FLOAT_EQ(scaled[1], 0.1F);
  EXPECT_FLOAT_EQ(scaled[2], 0.00625F);
  EXPECT_FLOAT_EQ(scaled[3], 0.00025F);
  config.rope_scaling.truncate = false;
  EXPECT_NEAR(InverseFrequencies(config)[2], 0.01 * (0.459071 / 4 + 0.540929), 1e-8);

  EXPECT_FLOAT_EQ(RopeMagnitude(config), 1.1386294F);  // 1 + ln 4 / 10
  float table[2 * 2 * 4];
  const auto device = Device::Cpu(1);
  ASSERT_TRUE(FillRopeTable(config, {table, DType::kF32, {2, 2, 4}}, *device).ok());
  EXPECT_FLOAT_EQ(table[0], 1.1386294F);
  EXPECT_FLOAT_EQ(table[12], 1.1386294F * 0.84147098F);  // sin 1
  config.rope_scaling.attention_factor = 0.5;
  EXPECT_EQ(RopeMagnitude(config), 0.5F);
}

TEST(CheckpointConfig, RoundTripsYarn) {
  ModelConfig config = TinyLlama();
  config.rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                         .factor = 32,
                         .original_max_position_embeddings = 4096,
                         .beta_fast = 16,
                         .beta_slow = 2,
                         .truncate = false,
                         .attention_factor = 1.25};
  const auto read = ConfigFromCheckpoint(ConfigToCheckpoint(config), "config.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(InverseFrequencies(*read), InverseFrequencies(config));
  EXPECT_FALSE(read->rope_scaling.truncate);
  EXPECT_EQ(RopeMagnitude(*read), 1.25F);
  config.rope_scaling.beta_fast = -1;
  EXPECT_THAT(Validate(config).message(), HasSubstr("rope_scaling: beta_fast: got -1"));
}

ModelConfig LongRoped() {
  ModelConfig config = TinyLlama();
  config.head_dim = 8;
  config.rotary_fraction = 0.5;
  config.rope_theta = 100;  // 1 and 0.1
  config.max_position_embeddings = 256;
  config.rope_scaling = {.kind = RopeScaling::Kind::kLongRope,
                         .factor = 0,
                         .original_max_position_embeddings = 64,
                         .short_factors = {1, 2},
                         .long_factors = {4, 5}};
  return config;
}

TEST(Rope, LongRopeHasTwoSetsOfFactors) {
  const ModelConfig config = LongRoped();
  EXPECT_THAT(InverseFrequencies(config, 64), ElementsAre(1.0F, 0.05F));
  EXPECT_THAT(InverseFrequencies(config, 65), ElementsAre(0.25F, 0.02F));
  EXPECT_FLOAT_EQ(RopeMagnitude(config), 1.1547005F);  // sqrt(1 + ln 4 / ln 64) = sqrt(4 / 3)
}

TEST(Limits, LongRopeEndsAtTheOriginalLengthUnlessMoreIsAskedFor) {
  EXPECT_EQ(ResolveLimits(LongRoped(), {})->max_seq_len, 64);
  EXPECT_EQ(ResolveLimits(LongRoped(), {.max_seq_len = 200})->max_seq_len, 200);
}

// NVIDIA/TensorRT-LLM/tensorrt_llm/models/phi3/config.py.
TEST(CheckpointConfig, LongRopeHasTheNamesOfUpstream) {
  ModelConfig config = LongRoped();
  nlohmann::json json = ConfigToCheckpoint(config);
  EXPECT_EQ(json["position_embedding_type"], "long_rope");
  EXPECT_EQ(json["original_max_position_embeddings"], 64);
  EXPECT_EQ(json["longrope_scaling_short_factors"], (nlohmann::json{1, 2}));
  EXPECT_EQ(json["longrope_scaling_long_factors"], (nlohmann::json{4, 5}));
  EXPECT_FALSE(json.contains("longrope_long_mscale"));
  for (const std::optional<double> factor : {std::optional<double>(), std::optional(1.5)}) {
    config.rope_scaling.attention_factor = factor;
    json = ConfigToCheckpoint(config);
    const auto read = ConfigFromCheckpoint(json, "config.json");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    for (const int length : {64, 65})
      EXPECT_EQ(InverseFrequencies(*read, length), InverseFrequencies(config, length));
    EXPECT_EQ(RopeMagnitude(*read), RopeMagnitude(config));
  }
  json["longrope_long_mscale"] = 1.75;
  EXPECT_THAT(ConfigFromCheckpoint(json, "config.json").status().message(),
              HasSubstr("longrope_long_mscale: got 1.75"));
  config.rope_scaling.long_factors = {1};
  EXPECT_THAT(Validate(config).message(), HasSubstr("long_factor: got 1 numbers, 2 are needed"));
}

TEST(WeightSlots, HaveTheNamesAndShapesOfTheCheckpoint) {
  DecoderWeights weights;
  std::vector<std::string> lines;
  for (const WeightSlot& slot : WeightSlots(TinyLlama(), weights))
    if (slot.name.find("layers.1") == std::string::npos)
      lines.push_back(slot.name + " " + slot.shape.ToString());
  EXPECT_THAT(lines, ElementsAre("transformer.vocab_embedding.weight [100, 32]",
                                 "transformer.layers.0.input_layernorm.weight [32]",
                                 "transformer.layers.0.attention.qkv.weight [64, 32]",
                                 "transformer.layers.0.attention.dense.weight [32, 32]",
                                 "transformer.layers.0.post_layernorm.weight [32]",
                                 "transformer.layers.0.mlp.fc.weight [48, 32]",
                                 "transformer.layers.0.mlp.gate.weight [48, 32]",
                                 "transformer.layers.0.mlp.proj.weight [32, 48]",
                                 "transformer.ln_f.weight [32]", "lm_head.weight [100, 32]"));
  lines.clear();
  for (const WeightSlot& slot : WeightSlots(TinyGpt2(), weights))
    if (slot.name.find("layers.1") == std::string::npos)
      lines.push_back(slot.name + " " + slot.shape.ToString());
  EXPECT_THAT(lines, ElementsAre("transformer.vocab_embedding.weight [100, 32]",
                                 "transformer.position_embedding.weight [64, 32]",
                                 "transformer.layers.0.input_layernorm.weight [32]",
                                 "transformer.layers.0.input_layernorm.bias [32]",
                                 "transformer.layers.0.attention.qkv.weight [96, 32]",
                                 "transformer.layers.0.attention.qkv.bias [96]",
                                 "transformer.layers.0.attention.dense.weight [32, 32]",
                                 "transformer.layers.0.attention.dense.bias [32]",
                                 "transformer.layers.0.post_layernorm.weight [32]",
                                 "transformer.layers.0.post_layernorm.bias [32]",
                                 "transformer.layers.0.mlp.fc.weight [48, 32]",
                                 "transformer.layers.0.mlp.fc.bias [48]",
                                 "transformer.layers.0.mlp.proj.weight [32, 48]",
                                 "transformer.layers.0.mlp.proj.bias [32]",
                                 "transformer.ln_f.weight [32]", "transformer.ln_f.bias [32]"));
}

TEST(Decoder, WorkspaceIsWhatWasPlanned) {
  const auto device = Device::Cpu(1);
  for (const ModelConfig& config : {TinyLlama(), TinyGpt2()}) {
    auto engine = std::make_shared<Engine>();
    engine->config = config;
    engine->limits = *ResolveLimits(config, {});
    const uint64_t before = device->ledger().free_bytes();
    const auto decoder = Decoder::Create(engine, {}, *device, 10, 3);
    ASSERT_TRUE(decoder.ok()) << decoder.status().ToString();
    EXPECT_EQ((*decoder)->workspace_bytes(),
              Decoder::WorkspaceBytes(config, DeviceKind::kCpu, 64, 10, 3));
    EXPECT_EQ(before - device->ledger().free_bytes(), (*decoder)->workspace_bytes());
  }
}

// Of shared experts ranks hold different numbers, and gather each other's logits by their place.
TEST(DecoderWorkspace, RanksOfExpertsHaveOneLayout) {
  for (const int num_shared : {1, 3}) {
    ModelConfig config = TinyLlama();
    config.num_experts = 4;
    config.num_shared_experts = num_shared;
    config.experts_per_token = 2;
    config.expert_intermediate_size = 64;
    config.part.tp_size = config.part.moe_ep_size = 2;
    const auto of_rank = [&](int rank) {
      config.part.tp_rank = rank;
      DecoderWorkspace out;
      const uint64_t bytes = LayOut(config, DeviceKind::kCuda, 64, 10, 3,
                                    reinterpret_cast<std::byte*>(uintptr_t{1} << 20U), out);
      EXPECT_EQ(out.experts.inner.shape, Shape({10 * int64_t{ExpertsOfToken(config)}, 64}));
      return std::tuple(bytes, out.delta.data, out.logits.data, out.rank_logits.data);
    };
    EXPECT_EQ(of_rank(0), of_rank(1));
  }
}

TEST(Decoder, WithoutMemoryThereIsAStatus) {
  const auto device = Device::CpuWithCapacity(1, 1000);
  auto engine = std::make_shared<Engine>();
  engine->config = TinyLlama();
  engine->limits = *ResolveLimits(engine->config, {});
  EXPECT_EQ(Decoder::Create(engine, {}, *device, 10, 3).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace inflight::model

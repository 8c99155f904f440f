// SPDX-License-Identifier: Apache-2.0
// Published config.json of families: what each sets of ModelConfig, and what its checkpoints say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "builder/hf_config.h"
#include "model/config_json.h"
#include "model/rope.h"

namespace inflight::builder {
namespace {

using model::ModelConfig;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// The model that `config` describes; a checkpoint of it describes the same one.
ModelConfig Read(const json& config) {
  const auto hf = ParseHfConfig(config, "config.json");
  EXPECT_TRUE(hf.ok()) << hf.status().ToString();
  if (!hf.ok()) return {};
  const json checkpoint = model::ConfigToCheckpoint(hf->config);
  const auto read = model::ConfigFromCheckpoint(checkpoint, "checkpoint");
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  if (!read.ok()) return {};
  EXPECT_EQ(model::ConfigToCheckpoint(*read), checkpoint);
  return *read;
}

Status ErrorOf(json config, const char* field, json value) {
  config[field] = std::move(value);
  return ParseHfConfig(config, "config.json").status();
}

float ScaleInBf16(ModelConfig config) {
  config.dtype = DType::kBF16;
  return EmbeddingScale(config);
}

// google/gemma-2b.
TEST(HfFamilies, ReadsGemma) {
  const json config = {{"architectures", {"GemmaForCausalLM"}},
                       {"attention_bias", false},
                       {"bos_token_id", 2},
                       {"eos_token_id", 1},
                       {"head_dim", 256},
                       {"hidden_act", "gelu"},
                       {"hidden_activation", "gelu_pytorch_tanh"},
                       {"hidden_size", 2048},
                       {"intermediate_size", 16384},
                       {"max_position_embeddings", 8192},
                       {"model_type", "gemma"},
                       {"num_attention_heads", 8},
                       {"num_hidden_layers", 18},
                       {"num_key_value_heads", 1},
                       {"pad_token_id", 0},
                       {"rms_norm_eps", 1e-06},
                       {"rope_scaling", nullptr},
                       {"rope_theta", 10000.0},
                       {"torch_dtype", "bfloat16"},
                       {"vocab_size", 256000}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(m.architecture, "GemmaForCausalLM");
  EXPECT_EQ(m.activation, ops::ActivationKind::kGeluTanh) << "gelu, which means its tanh form";
  EXPECT_EQ(m.norm_placement, model::NormPlacement::kPre);
  EXPECT_TRUE(m.has_one_centered_norms && m.tied_embeddings);
  EXPECT_EQ(m.attention_multiplier, std::nullopt);
  EXPECT_EQ(m.sliding_window, 0);
  EXPECT_EQ(ScaleInBf16(m), 45.25F) << "sqrt(2048) = 45.2548";
}

// mistralai/Mixtral-8x7B-Instruct-v0.1.
TEST(HfFamilies, ReadsMixtral) {
  const json config = {{"architectures", {"MixtralForCausalLM"}},
                       {"attention_dropout", 0.0},
                       {"bos_token_id", 1},
                       {"eos_token_id", 2},
                       {"hidden_act", "silu"},
                       {"hidden_size", 4096},
                       {"initializer_range", 0.02},
                       {"intermediate_size", 14336},
                       {"max_position_embeddings", 32768},
                       {"model_type", "mixtral"},
                       {"num_attention_heads", 32},
                       {"num_experts_per_tok", 2},
                       {"num_hidden_layers", 32},
                       {"num_key_value_heads", 8},
                       {"num_local_experts", 8},
                       {"output_router_logits", false},
                       {"rms_norm_eps", 1e-05},
                       {"rope_theta", 1000000.0},
                       {"router_aux_loss_coef", 0.02},
                       {"sliding_window", nullptr},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "bfloat16"},
                       {"vocab_size", 32000}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(m.num_experts, 8);
  EXPECT_EQ(m.experts_per_token, 2);
  EXPECT_EQ(m.expert_intermediate_size, 14336);
  EXPECT_TRUE(m.has_renormalized_experts);
  EXPECT_TRUE(m.dense_layers.empty());
  EXPECT_EQ(m.sliding_window, 0);
  const json checkpoint = model::ConfigToCheckpoint(m);
  EXPECT_EQ(checkpoint["architecture"], "MixtralForCausalLM");
  EXPECT_EQ(checkpoint["moe"], (json{{"num_experts", 8}, {"top_k", 2}, {"normalization_mode", 1}}));
  const auto error = [&](const char* field, json value) {
    json changed = checkpoint;
    changed["moe"][field] = std::move(value);
    return model::ConfigFromCheckpoint(changed, "config.json").status().message();
  };
  EXPECT_THAT(error("top_k", 9), HasSubstr("config.json: moe: top_k: got 9"));
  EXPECT_THAT(error("normalization_mode", 2), HasSubstr("moe: normalization_mode: got 2"));
}

// Qwen/Qwen3-30B-A3B.
TEST(HfFamilies, ReadsQwen3Moe) {
  const json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                       {"attention_bias", false},
                       {"attention_dropout", 0.0},
                       {"bos_token_id", 151643},
                       {"decoder_sparse_step", 1},
                       {"eos_token_id", 151645},
                       {"head_dim", 128},
                       {"hidden_act", "silu"},
                       {"hidden_size", 2048},
                       {"initializer_range", 0.02},
                       {"intermediate_size", 6144},
                       {"max_position_embeddings", 40960},
                       {"max_window_layers", 48},
                       {"mlp_only_layers", json::array()},
                       {"model_type", "qwen3_moe"},
                       {"moe_intermediate_size", 768},
                       {"norm_topk_prob", true},
                       {"num_attention_heads", 32},
                       {"num_experts", 128},
                       {"num_experts_per_tok", 8},
                       {"num_hidden_layers", 48},
                       {"num_key_value_heads", 4},
                       {"output_router_logits", false},
                       {"rms_norm_eps", 1e-06},
                       {"rope_scaling", nullptr},
                       {"rope_theta", 1000000.0},
                       {"router_aux_loss_coef", 0.001},
                       {"sliding_window", nullptr},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "bfloat16"},
                       {"use_cache", true},
                       {"use_sliding_window", false},
                       {"vocab_size", 151936}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(m.num_experts, 128);
  EXPECT_EQ(m.experts_per_token, 8);
  EXPECT_EQ(m.expert_intermediate_size, 768);
  EXPECT_TRUE(m.has_renormalized_experts && m.qk_norm);
  EXPECT_TRUE(m.dense_layers.empty());
  json mixed = config;
  mixed["num_hidden_layers"] = 5;
  mixed["decoder_sparse_step"] = 2;
  mixed["mlp_only_layers"] = {3};
  mixed.erase("norm_topk_prob");
  const ModelConfig some = Read(mixed);
  EXPECT_THAT(some.dense_layers, ElementsAre(true, false, true, true, true));
  EXPECT_FALSE(some.has_renormalized_experts);
  EXPECT_THAT(ErrorOf(config, "mlp_only_layers", {48}).message(),
              HasSubstr("mlp_only_layers: got [48], a list of numbers of layers below 48"));
  EXPECT_THAT(ErrorOf(config, "num_experts", 0).message(), HasSubstr("num_experts: got 0"));
  EXPECT_THAT(ErrorOf(config, "decoder_sparse_step", 0).message(),
              HasSubstr("decoder_sparse_step: got 0"));
}

// google/gemma-2-27b.
TEST(HfFamilies, ReadsGemma2) {
  json config = {{"architectures", {"Gemma2ForCausalLM"}},
                 {"attention_bias", false},
                 {"attn_logit_softcapping", 50.0},
                 {"bos_token_id", 2},
                 {"cache_implementation", "hybrid"},
                 {"eos_token_id", 1},
                 {"final_logit_softcapping", 30.0},
                 {"head_dim", 128},
                 {"hidden_act", "gelu_pytorch_tanh"},
                 {"hidden_activation", "gelu_pytorch_tanh"},
                 {"hidden_size", 4608},
                 {"intermediate_size", 36864},
                 {"max_position_embeddings", 8192},
                 {"model_type", "gemma2"},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 46},
                 {"num_key_value_heads", 16},
                 {"query_pre_attn_scalar", 144},
                 {"rms_norm_eps", 1e-06},
                 {"rope_theta", 10000.0},
                 {"sliding_window", 4096},
                 {"torch_dtype", "float32"},
                 {"vocab_size", 256000}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(m.norm_placement, model::NormPlacement::kBoth);
  EXPECT_EQ(m.attention_multiplier, 1.0F / 12);
  EXPECT_EQ(m.attention_softcap, 50);
  EXPECT_EQ(m.logits_softcap, 30);
  EXPECT_FALSE(m.qk_norm);
  EXPECT_EQ(WindowOf(m, 0), 4096);
  EXPECT_EQ(WindowOf(m, 1), 0);
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"})
    config[name] = nullptr;
  EXPECT_EQ(Read(config).attention_softcap, 0);
  EXPECT_EQ(Read(config).logits_softcap, 0);
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"}) config.erase(name);
  EXPECT_EQ(Read(config).attention_softcap, 50) << "the default of transformers";
  EXPECT_EQ(Read(config).logits_softcap, 30);
}

// google/gemma-3-1b-it.
json Gemma3() {
  return {{"architectures", {"Gemma3ForCausalLM"}},
          {"attention_bias", false},
          {"attn_logit_softcapping", nullptr},
          {"bos_token_id", 2},
          {"cache_implementation", "hybrid"},
          {"eos_token_id", {1, 106}},
          {"final_logit_softcapping", nullptr},
          {"head_dim", 256},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"hidden_size", 1152},
          {"intermediate_size", 6912},
          {"max_position_embeddings", 32768},
          {"model_type", "gemma3_text"},
          {"num_attention_heads", 4},
          {"num_hidden_layers", 26},
          {"num_key_value_heads", 1},
          {"pad_token_id", 0},
          {"query_pre_attn_scalar", 256},
          {"rms_norm_eps", 1e-06},
          {"rope_local_base_freq", 10000},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000},
          {"sliding_window", 512},
          {"sliding_window_pattern", 6},
          {"torch_dtype", "bfloat16"},
          {"vocab_size", 262144}};
}

TEST(HfFamilies, ReadsGemma3) {
  const ModelConfig m = Read(Gemma3());
  EXPECT_EQ(m.architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(m.head_dim, 256);
  EXPECT_EQ(m.norm_placement, model::NormPlacement::kBoth);
  EXPECT_TRUE(m.qk_norm && m.tied_embeddings && m.gated_mlp && m.has_one_centered_norms);
  EXPECT_EQ(m.activation, ops::ActivationKind::kGeluTanh);
  EXPECT_EQ(ScaleInBf16(m), 34.0F) << "sqrt(1152) = 33.94";
  EXPECT_EQ(m.attention_multiplier, 1.0F / 16);
  EXPECT_EQ(m.logits_softcap, 0);
  EXPECT_EQ(m.rope_theta, 1e6);
  EXPECT_EQ(m.sliding_rope_theta, 1e4);
  EXPECT_EQ(WindowOf(m, 4), 512);
  EXPECT_EQ(WindowOf(m, 5), 0);
  EXPECT_EQ(WindowOf(m, 25), 512);
  EXPECT_THAT(m.end_ids, ElementsAre(1, 106));

  // The newer spelling says the same.
  json config = Gemma3();
  for (const char* name : {"rope_theta", "rope_local_base_freq", "rope_scaling"})
    config.erase(name);
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  EXPECT_EQ(ConfigToCheckpoint(Read(config)), ConfigToCheckpoint(m));
  config["layer_types"] = std::vector<std::string>(26, "full_attention");
  EXPECT_EQ(Read(config).sliding_rope_theta, std::nullopt) << "no layer has it";
}

// google/gemma-3-4b-it, whose parts leave their defaults out.
TEST(HfFamilies, ReadsThePartOfGemma3ThatReadsText) {
  json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                 {"eos_token_id", {1, 106}},
                 {"image_token_index", 262144},
                 {"mm_tokens_per_image", 256},
                 {"model_type", "gemma3"},
                 {"text_config",
                  {{"hidden_size", 2560},
                   {"intermediate_size", 10240},
                   {"model_type", "gemma3_text"},
                   {"num_hidden_layers", 34},
                   {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                   {"sliding_window", 1024}}},
                 {"torch_dtype", "bfloat16"},
                 {"vision_config", {{"hidden_size", 1152}, {"model_type", "siglip_vision_model"}}}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(m.architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(m.num_heads, 8);
  EXPECT_EQ(m.num_kv_heads, 4);
  EXPECT_EQ(m.vocab_size, 262208);
  EXPECT_EQ(m.max_position_embeddings, 131072);
  EXPECT_EQ(m.rope_scaling.kind, model::RopeScaling::Kind::kLinear);
  EXPECT_EQ(m.rope_scaling.factor, 8.0);
  EXPECT_EQ(m.sliding_rope_theta, 1e4);
  EXPECT_EQ(WindowOf(m, 0), 1024);
  EXPECT_THAT(m.end_ids, ElementsAre(1, 106));
  EXPECT_EQ(ParseHfConfig(config, "config.json")->dtype, DType::kBF16);
  config.erase("architectures");
  EXPECT_EQ(Read(config).architecture, "Gemma3ForCausalLM");
  EXPECT_THAT(ErrorOf(config, "quantization_config", {{"quant_method", "gptq"}}).message(),
              HasSubstr("quantization_config: bits: is missing"));
  EXPECT_EQ(ErrorOf(config, "text_config", nullptr).message(),
            "config.json: text_config: is missing");
}

TEST(HfFamilies, Gemma3RefusesByName) {
  const auto error = [](const char* field, json value) {
    const Status status = ErrorOf(Gemma3(), field, std::move(value));
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << field << ": " << status.ToString();
    return status.message();
  };
  EXPECT_THAT(error("attn_logit_softcapping", 50.0), HasSubstr("attn_logit_softcapping: got 50"));
  EXPECT_THAT(error("use_bidirectional_attention", true), HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(
      error("rope_parameters",
            {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 1e4}}}}),
      HasSubstr("rope_parameters: sliding_attention: rope_type: only default"));
  EXPECT_THAT(error("rope_scaling", {{"rope_type", "su"}, {"factor", 2.0}}),
              HasSubstr("type \"su\" is not supported"));
}

// allenai/OLMo-2-1124-7B.
TEST(HfFamilies, ReadsOlmo2) {
  const ModelConfig m = Read({{"architectures", {"Olmo2ForCausalLM"}},
                              {"attention_bias", false},
                              {"eos_token_id", 100257},
                              {"hidden_act", "silu"},
                              {"hidden_size", 4096},
                              {"intermediate_size", 11008},
                              {"max_position_embeddings", 4096},
                              {"model_type", "olmo2"},
                              {"num_attention_heads", 32},
                              {"num_hidden_layers", 32},
                              {"num_key_value_heads", 32},
                              {"pad_token_id", 100277},
                              {"rms_norm_eps", 1e-06},
                              {"rope_scaling", nullptr},
                              {"rope_theta", 500000},
                              {"tie_word_embeddings", false},
                              {"torch_dtype", "float32"},
                              {"vocab_size", 100352}});
  EXPECT_EQ(m.norm_placement, model::NormPlacement::kPost);
  EXPECT_TRUE(m.qk_norm && m.has_wide_qk_norm);
  EXPECT_EQ(m.rope_theta, 500000.0);
  EXPECT_EQ(m.head_dim, 128);
}

// microsoft/Phi-3-mini-4k-instruct; microsoft/Phi-4-mini-instruct adds what is refused.
TEST(HfFamilies, ReadsPhi3) {
  json config = {{"architectures", {"Phi3ForCausalLM"}},
                 {"attention_bias", false},
                 {"bos_token_id", 1},
                 {"eos_token_id", 32000},
                 {"hidden_act", "silu"},
                 {"hidden_size", 3072},
                 {"intermediate_size", 8192},
                 {"max_position_embeddings", 4096},
                 {"model_type", "phi3"},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 32},
                 {"num_key_value_heads", 32},
                 {"original_max_position_embeddings", 4096},
                 {"pad_token_id", 32000},
                 {"rms_norm_eps", 1e-05},
                 {"rope_scaling", nullptr},
                 {"rope_theta", 10000.0},
                 {"sliding_window", 2047},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "bfloat16"},
                 {"vocab_size", 32064}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(m.head_dim, 96);
  EXPECT_EQ(WindowOf(m, 0), 2047);
  EXPECT_EQ(m.rotary_fraction, 1);
  config["partial_rotary_factor"] = 0.75;
  EXPECT_EQ(RotaryDim(Read(config)), 72);
  config.erase("partial_rotary_factor");
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 5e4}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(RotaryDim(Read(config)), 48);
  EXPECT_EQ(Read(config).rope_theta, 5e4);
  config.erase("rope_parameters");
  EXPECT_THAT(ErrorOf(config, "rope_scaling",
                      {{"type", "su"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}})
                  .message(),
              HasSubstr("rope_scaling: short_factor: got 1 numbers, 48 are needed"));
}

// microsoft/Phi-4-mini-instruct; its 48 factors of each list are shortened to their bounds.
TEST(HfFamilies, ReadsTheLongRopeOfPhi) {
  const json short_factors(48, 1.0);
  const json long_factors(48, 47.77);
  json config = {
      {"architectures", {"Phi3ForCausalLM"}},
      {"hidden_size", 3072},
      {"intermediate_size", 8192},
      {"max_position_embeddings", 131072},
      {"model_type", "phi3"},
      {"num_attention_heads", 24},
      {"num_hidden_layers", 32},
      {"num_key_value_heads", 8},
      {"original_max_position_embeddings", 4096},
      {"partial_rotary_factor", 0.75},
      {"rms_norm_eps", 1e-05},
      {"rope_scaling",
       {{"long_factor", long_factors}, {"short_factor", short_factors}, {"type", "longrope"}}},
      {"rope_theta", 10000.0},
      {"sliding_window", 262144},
      {"tie_word_embeddings", true},
      {"vocab_size", 200064}};
  for (const char* type : {"longrope", "su", "yarn"}) {  // the older names of it
    config["rope_scaling"]["type"] = type;
    const ModelConfig m = Read(config);
    EXPECT_EQ(m.rope_scaling.kind, model::RopeScaling::Kind::kLongRope);
    EXPECT_EQ(RotaryDim(m), 96);
    EXPECT_EQ(OriginalLength(m), 4096);
    EXPECT_TRUE(HasLongFactors(m, 4097));
    EXPECT_FALSE(HasLongFactors(m, 4096));
    EXPECT_FLOAT_EQ(RopeMagnitude(m), 1.1902381F);  // sqrt(1 + ln 32 / ln 4096) = sqrt(17 / 12)
  }
  config.erase("original_max_position_embeddings");
  EXPECT_EQ(OriginalLength(Read(config)), 4096);
}

// As Qwen/Qwen2.5-7B-Instruct's model card adds it, and as openai/gpt-oss-20b has it.
TEST(HfFamilies, ReadsYarn) {
  json config = {{"architectures", {"Qwen2ForCausalLM"}},
                 {"hidden_size", 3584},
                 {"intermediate_size", 18944},
                 {"max_position_embeddings", 32768},
                 {"model_type", "qwen2"},
                 {"num_attention_heads", 28},
                 {"num_hidden_layers", 28},
                 {"num_key_value_heads", 4},
                 {"rope_scaling",
                  {{"factor", 4.0}, {"original_max_position_embeddings", 32768}, {"type", "yarn"}}},
                 {"rope_theta", 1e6},
                 {"vocab_size", 152064}};
  ModelConfig m = Read(config);
  EXPECT_EQ(m.rope_scaling.kind, model::RopeScaling::Kind::kYarn);
  EXPECT_EQ(m.rope_scaling.factor, 4);
  EXPECT_TRUE(m.rope_scaling.truncate);
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(OriginalLength(Read(config)), 32768);  // max_position_embeddings
  config["rope_scaling"] = {{"beta_fast", 32.0},   {"beta_slow", 1.0},
                            {"factor", 32.0},      {"original_max_position_embeddings", 4096},
                            {"rope_type", "yarn"}, {"truncate", false}};
  m = Read(config);
  EXPECT_EQ(OriginalLength(m), 4096);
  EXPECT_FALSE(m.rope_scaling.truncate);
  EXPECT_FLOAT_EQ(RopeMagnitude(m), 1.3465736F);  // 1 + ln 32 / 10
  // (1 + 0.07 ln 32) / (1 + 0.1 ln 32)
  config["rope_scaling"].update({{"mscale", 0.7}, {"mscale_all_dim", 1.0}});
  EXPECT_FLOAT_EQ(RopeMagnitude(Read(config)), 0.9227877F);
}

// ibm-granite/granite-3.1-8b-instruct.
TEST(HfFamilies, ReadsGranite) {
  json config = {{"architectures", {"GraniteForCausalLM"}},
                 {"attention_bias", false},
                 {"attention_multiplier", 0.0078125},
                 {"bos_token_id", 0},
                 {"embedding_multiplier", 12.0},
                 {"eos_token_id", 0},
                 {"hidden_act", "silu"},
                 {"hidden_size", 4096},
                 {"intermediate_size", 12800},
                 {"logits_scaling", 16.0},
                 {"max_position_embeddings", 131072},
                 {"mlp_bias", false},
                 {"model_type", "granite"},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 40},
                 {"num_key_value_heads", 8},
                 {"residual_multiplier", 0.22},
                 {"rms_norm_eps", 1e-05},
                 {"rope_scaling", nullptr},
                 {"rope_theta", 10000000.0},
                 {"tie_word_embeddings", true},
                 {"torch_dtype", "bfloat16"},
                 {"vocab_size", 49155}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(EmbeddingScale(m), 12);
  EXPECT_EQ(m.residual_multiplier, 0.22F);
  EXPECT_EQ(m.attention_multiplier, 1.0F / 128);
  EXPECT_EQ(m.logits_scale, 1.0F / 16);
  config.erase("attention_multiplier");
  EXPECT_EQ(Read(config).attention_multiplier, 1) << "the default of transformers";
  EXPECT_EQ(ErrorOf(config, "logits_scaling", 0).message(),
            "config.json: logits_scaling: got 0, a number above 0 is needed");
}

// HuggingFaceTB/SmolLM3-3B.
TEST(HfFamilies, ReadsSmolLm3) {
  json config = {{"architectures", {"SmolLM3ForCausalLM"}},
                 {"attention_bias", false},
                 {"eos_token_id", 128012},
                 {"hidden_act", "silu"},
                 {"hidden_size", 2048},
                 {"intermediate_size", 11008},
                 {"layer_types", std::vector<std::string>(36, "full_attention")},
                 {"max_position_embeddings", 65536},
                 {"mlp_bias", false},
                 {"model_type", "smollm3"},
                 {"no_rope_layer_interval", 4},
                 {"num_attention_heads", 16},
                 {"num_hidden_layers", 36},
                 {"num_key_value_heads", 4},
                 {"rms_norm_eps", 1e-06},
                 {"rope_scaling", nullptr},
                 {"rope_theta", 5000000.0},
                 {"sliding_window", nullptr},
                 {"torch_dtype", "bfloat16"},
                 {"use_sliding_window", false},
                 {"vocab_size", 128256}};
  const ModelConfig m = Read(config);
  EXPECT_TRUE(m.tied_embeddings);
  EXPECT_TRUE(HasRope(m, 0) && HasRope(m, 2) && HasRope(m, 4));
  EXPECT_FALSE(HasRope(m, 3) || HasRope(m, 35));
  config["no_rope_layers"] = std::vector<int>(40, 1);  // may be longer
  EXPECT_TRUE(HasRope(Read(config), 3));
  EXPECT_TRUE(Read(config).rope_layers.empty());
  EXPECT_THAT(ErrorOf(config, "no_rope_layers", {1, 0}).message(),
              HasSubstr("no_rope_layers: got [1,0], a list of 0 and 1 for 36 layers is needed"));
  config["use_sliding_window"] = true;
  EXPECT_THAT(ErrorOf(config, "sliding_window", 4096).message(),
              HasSubstr("sliding_window: got 4096"));
}

// bigcode/starcoder2-3b.
TEST(HfFamilies, ReadsStarCoder2) {
  json config = {{"architectures", {"Starcoder2ForCausalLM"}},
                 {"bos_token_id", 0},
                 {"eos_token_id", 0},
                 {"hidden_act", "gelu_pytorch_tanh"},
                 {"hidden_size", 3072},
                 {"intermediate_size", 12288},
                 {"max_position_embeddings", 16384},
                 {"mlp_type", "default"},
                 {"model_type", "starcoder2"},
                 {"norm_epsilon", 1e-05},
                 {"norm_type", "layer_norm"},
                 {"num_attention_heads", 24},
                 {"num_hidden_layers", 30},
                 {"num_key_value_heads", 2},
                 {"rope_theta", 999999.4420358813},
                 {"sliding_window", 4096},
                 {"use_bias", true},
                 {"vocab_size", 49152}};
  const ModelConfig m = Read(config);
  EXPECT_EQ(m.norm, ops::NormKind::kLayerNorm);
  EXPECT_EQ(m.activation, ops::ActivationKind::kGeluTanh);
  EXPECT_FALSE(m.gated_mlp);
  EXPECT_TRUE(m.qkv_bias && m.dense_bias && m.mlp_bias && m.tied_embeddings);
  EXPECT_EQ(WindowOf(m, 29), 4096);
  EXPECT_EQ(m.norm_eps, 1e-5F);
  for (const json& none : {json(), json("erased")}) {
    config["sliding_window"] = none;
    if (none == "erased") config.erase("sliding_window");
    EXPECT_EQ(Read(config).sliding_window, 0);
  }
}

}  // namespace
}  // namespace inflight::builder

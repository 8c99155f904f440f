// SPDX-License-Identifier: Apache-2.0
#include "builder/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/config_json.h"

namespace inflight::builder {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json OldLlama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 2048},
          {"intermediate_size", 8192},
          {"num_hidden_layers", 16},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"vocab_size", 128256},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-05},
          {"hidden_act", "silu"},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"factor", 32.0},
            {"high_freq_factor", 4.0},
            {"low_freq_factor", 1.0},
            {"original_max_position_embeddings", 8192},
            {"rope_type", "llama3"}}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"pretraining_tp", 1},
          {"tie_word_embeddings", true},
          {"bos_token_id", 128000},
          {"eos_token_id", {128001, 128008, 128009}},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true}};
}

// The same in the newer spelling.
json NewLlama() {
  json config = OldLlama();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config["dtype"] = config["torch_dtype"];
  for (const char* name : {"rope_scaling", "rope_theta", "torch_dtype"}) config.erase(name);
  return config;
}

Result<HfConfig> Parse(const json& config) { return ParseHfConfig(config, "config.json"); }

TEST(HfConfig, ReadsLlamaInOlderAndNewerSpelling) {
  for (const json& config : {OldLlama(), NewLlama()}) {
    const auto hf = Parse(config);
    ASSERT_TRUE(hf.ok()) << hf.status().ToString();
    EXPECT_EQ(hf->dtype, DType::kBF16);
    const model::ModelConfig& m = hf->config;
    EXPECT_EQ(m.head_dim, 64);
    EXPECT_EQ(m.num_kv_heads, 8);
    EXPECT_TRUE(m.tied_embeddings);
    EXPECT_TRUE(m.gated_mlp);
    EXPECT_EQ(m.rope_theta, 500000.0);
    EXPECT_EQ(m.rope_scaling.kind, model::RopeScaling::Kind::kLlama3);
    EXPECT_EQ(m.rope_scaling.factor, 32.0);
    EXPECT_EQ(m.rope_scaling.original_max_position_embeddings, 8192);
    EXPECT_THAT(m.end_ids, ElementsAre(128001, 128008, 128009));
    EXPECT_EQ(m.bos_id, 128000);
    EXPECT_EQ(m.pad_id, std::nullopt);
  }
}

TEST(HfConfig, FillsInWhatOldLlamaFilesLeaveOut) {
  json config = OldLlama();
  for (const char* name :
       {"num_key_value_heads", "rope_theta", "rope_scaling", "tie_word_embeddings",
        "attention_bias", "mlp_bias", "torch_dtype", "rms_norm_eps"})
    config.erase(name);
  config["eos_token_id"] = 2;
  config["pad_token_id"] = -1;
  const auto hf = Parse(config);
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  EXPECT_EQ(hf->dtype, std::nullopt);
  EXPECT_EQ(hf->config.num_kv_heads, 32);
  EXPECT_EQ(hf->config.rope_theta, 10000.0);
  EXPECT_EQ(hf->config.rope_scaling.kind, model::RopeScaling::Kind::kNone);
  EXPECT_EQ(hf->config.norm_eps, 1e-6F);
  EXPECT_FALSE(hf->config.tied_embeddings);
  EXPECT_THAT(hf->config.end_ids, ElementsAre(2));
  EXPECT_EQ(hf->config.pad_id, std::nullopt);
}

TEST(HfConfig, ReadsLinearRopeInThreeSpellings) {
  for (const json& scaling :
       {json{{"type", "linear"}, {"factor", 4.0}}, json{{"rope_type", "linear"}, {"factor", 4}},
        json{{"type", "linear"}, {"rope_type", "linear"}, {"factor", 4.0}}}) {
    json config = OldLlama();
    config["rope_scaling"] = scaling;
    const auto hf = Parse(config);
    ASSERT_TRUE(hf.ok()) << hf.status().ToString();
    EXPECT_EQ(hf->config.rope_scaling.kind, model::RopeScaling::Kind::kLinear);
    EXPECT_EQ(hf->config.rope_scaling.factor, 4.0);
  }
}

// The published config.json of gpt2, its irrelevant fields left out.
TEST(HfConfig, ReadsGpt2) {
  const auto hf = Parse({{"activation_function", "gelu_new"},
                         {"architectures", {"GPT2LMHeadModel"}},
                         {"attn_pdrop", 0.1},
                         {"bos_token_id", 50256},
                         {"eos_token_id", 50256},
                         {"layer_norm_epsilon", 1e-05},
                         {"model_type", "gpt2"},
                         {"n_ctx", 1024},
                         {"n_embd", 768},
                         {"n_head", 12},
                         {"n_layer", 12},
                         {"n_positions", 1024},
                         {"reorder_and_upcast_attn", true},
                         {"vocab_size", 50257}});
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  const model::ModelConfig& m = hf->config;
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_EQ(m.intermediate_size, 3072);
  EXPECT_EQ(m.position, model::PositionKind::kLearnedAbsolute);
  EXPECT_EQ(m.norm, ops::NormKind::kLayerNorm);
  EXPECT_EQ(m.activation, ops::ActivationKind::kGeluTanh);
  EXPECT_TRUE(m.qkv_bias && m.dense_bias && m.mlp_bias && m.tied_embeddings);
  EXPECT_FALSE(m.gated_mlp);
  EXPECT_THAT(m.end_ids, ElementsAre(50256));
}

// The published config.json of Qwen/Qwen2.5-0.5B.
TEST(HfConfig, ReadsQwen2) {
  json config = {{"architectures", {"Qwen2ForCausalLM"}},
                 {"bos_token_id", 151643},
                 {"eos_token_id", 151643},
                 {"hidden_act", "silu"},
                 {"hidden_size", 896},
                 {"intermediate_size", 4864},
                 {"max_position_embeddings", 32768},
                 {"max_window_layers", 24},
                 {"model_type", "qwen2"},
                 {"num_attention_heads", 14},
                 {"num_hidden_layers", 24},
                 {"num_key_value_heads", 2},
                 {"rms_norm_eps", 1e-06},
                 {"rope_theta", 1000000.0},
                 {"sliding_window", 32768},
                 {"tie_word_embeddings", true},
                 {"torch_dtype", "bfloat16"},
                 {"use_mrope", false},
                 {"use_sliding_window", false},
                 {"vocab_size", 151936}};
  const auto hf = Parse(config);
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  const model::ModelConfig& m = hf->config;
  EXPECT_EQ(m.architecture, "Qwen2ForCausalLM");
  EXPECT_TRUE(m.qkv_bias && m.tied_embeddings);
  EXPECT_FALSE(m.dense_bias || m.mlp_bias || m.qk_norm);
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_EQ(m.rope_theta, 1000000.0);
  EXPECT_EQ(m.sliding_window, 0);
  // Windows, where they are asked for, are of the layers from max_window_layers on.
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 22;
  const model::ModelConfig windowed = Parse(config)->config;
  EXPECT_EQ(windowed.sliding_window, 32768);
  EXPECT_EQ(WindowOf(windowed, 21), 0);
  EXPECT_EQ(WindowOf(windowed, 22), 32768);
  config["layer_types"] = std::vector<std::string>(24, "sliding_attention");
  EXPECT_EQ(WindowOf(Parse(config)->config, 0), 32768);
}

// The published config.json of deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B: a Qwen2 that says of
// windows what it does not use.
TEST(HfConfig, ReadsDeepSeeksDistillationOfQwen) {
  const auto hf = Parse({{"architectures", {"Qwen2ForCausalLM"}},
                         {"attention_dropout", 0.0},
                         {"bos_token_id", 151643},
                         {"eos_token_id", 151643},
                         {"hidden_act", "silu"},
                         {"hidden_size", 1536},
                         {"initializer_range", 0.02},
                         {"intermediate_size", 8960},
                         {"max_position_embeddings", 131072},
                         {"max_window_layers", 21},
                         {"model_type", "qwen2"},
                         {"num_attention_heads", 12},
                         {"num_hidden_layers", 28},
                         {"num_key_value_heads", 2},
                         {"rms_norm_eps", 1e-06},
                         {"rope_theta", 10000},
                         {"sliding_window", 4096},
                         {"tie_word_embeddings", false},
                         {"torch_dtype", "bfloat16"},
                         {"transformers_version", "4.44.0"},
                         {"use_cache", true},
                         {"use_mrope", false},
                         {"use_sliding_window", false},
                         {"vocab_size", 151936}});
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  const model::ModelConfig& m = hf->config;
  EXPECT_EQ(hf->dtype, DType::kBF16);
  EXPECT_TRUE(m.qkv_bias);
  EXPECT_FALSE(m.tied_embeddings || m.dense_bias || m.qk_norm);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.rope_theta, 10000.0);
  EXPECT_EQ(m.sliding_window, 0);
  EXPECT_EQ(m.max_position_embeddings, 131072);
  EXPECT_THAT(m.end_ids, ElementsAre(151643));
}

// That of deepseek-ai/DeepSeek-R1-Distill-Llama-8B: Llama 3.1 with an end of its own.
TEST(HfConfig, ReadsDeepSeeksDistillationOfLlama) {
  json config = OldLlama();
  config.update({{"eos_token_id", 128001},
                 {"hidden_size", 4096},
                 {"intermediate_size", 14336},
                 {"num_hidden_layers", 32},
                 {"tie_word_embeddings", false}});
  config["rope_scaling"]["factor"] = 8.0;
  const auto hf = Parse(config);
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  EXPECT_EQ(hf->config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(hf->config.rope_scaling.kind, model::RopeScaling::Kind::kLlama3);
  EXPECT_EQ(hf->config.rope_scaling.factor, 8.0);
  EXPECT_FALSE(hf->config.tied_embeddings);
  EXPECT_THAT(hf->config.end_ids, ElementsAre(128001));
}

// The published config.json of Qwen/Qwen3-0.6B.
TEST(HfConfig, ReadsQwen3) {
  const auto hf = Parse({{"architectures", {"Qwen3ForCausalLM"}},
                         {"attention_bias", false},
                         {"bos_token_id", 151643},
                         {"eos_token_id", 151645},
                         {"head_dim", 128},
                         {"hidden_act", "silu"},
                         {"hidden_size", 1024},
                         {"intermediate_size", 3072},
                         {"max_position_embeddings", 40960},
                         {"max_window_layers", 28},
                         {"model_type", "qwen3"},
                         {"num_attention_heads", 16},
                         {"num_hidden_layers", 28},
                         {"num_key_value_heads", 8},
                         {"rms_norm_eps", 1e-06},
                         {"rope_scaling", nullptr},
                         {"rope_theta", 1000000},
                         {"sliding_window", nullptr},
                         {"tie_word_embeddings", true},
                         {"torch_dtype", "bfloat16"},
                         {"use_sliding_window", false},
                         {"vocab_size", 151936}});
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  const model::ModelConfig& m = hf->config;
  EXPECT_EQ(m.architecture, "Qwen3ForCausalLM");
  EXPECT_TRUE(m.qk_norm && m.tied_embeddings);
  EXPECT_FALSE(m.qkv_bias || m.dense_bias || m.mlp_bias);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.sliding_window, 0);
  EXPECT_THAT(m.end_ids, ElementsAre(151645));
}

// The published config.json of mistralai/Mistral-7B-v0.1; later ones say null, or nothing.
TEST(HfConfig, ReadsMistral) {
  json config = {{"architectures", {"MistralForCausalLM"}},
                 {"bos_token_id", 1},
                 {"eos_token_id", 2},
                 {"hidden_act", "silu"},
                 {"hidden_size", 4096},
                 {"intermediate_size", 14336},
                 {"max_position_embeddings", 32768},
                 {"model_type", "mistral"},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 32},
                 {"num_key_value_heads", 8},
                 {"rms_norm_eps", 1e-05},
                 {"rope_theta", 10000.0},
                 {"sliding_window", 4096},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "bfloat16"},
                 {"vocab_size", 32000}};
  const auto hf = Parse(config);
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  EXPECT_EQ(hf->config.architecture, "MistralForCausalLM");
  EXPECT_EQ(hf->config.head_dim, 128);
  EXPECT_EQ(WindowOf(hf->config, 0), 4096);
  EXPECT_EQ(WindowOf(hf->config, 31), 4096);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(Parse(config)->config.sliding_window, 0);
  config.erase("sliding_window");
  EXPECT_EQ(Parse(config)->config.sliding_window, 4096) << "the default of transformers";
}

// The classes of ACT2FN in huggingface/transformers/src/transformers/activations.py.
TEST(HfConfig, GeluIsTheExactFormAndItsOtherNamesAreNot) {
  const auto activation = [](const char* name) {
    return Parse({{"architectures", {"GPT2LMHeadModel"}}, {"activation_function", name}})
        ->config.activation;
  };
  EXPECT_EQ(activation("gelu"), ops::ActivationKind::kGelu);
  EXPECT_EQ(activation("gelu_python"), ops::ActivationKind::kGelu);
  for (const char* name : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"})
    EXPECT_EQ(activation(name), ops::ActivationKind::kGeluTanh) << name;
  EXPECT_EQ(Parse({{"architectures", {"GPT2LMHeadModel"}}, {"activation_function", "gelu_erf"}})
                .status()
                .code(),
            StatusCode::kUnimplemented);
}

TEST(HfConfig, RefusesByNameWhatIsNotSupported) {
  const auto error = [](json config, const char* field, json value) {
    config[field] = std::move(value);
    const Status status = Parse(config).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << field << ": " << status.ToString();
    return status.message();
  };
  const json llama = OldLlama();
  EXPECT_THAT(error(llama, "architectures", {"DbrxForCausalLM"}), HasSubstr("DbrxForCausalLM"));
  EXPECT_THAT(error(llama, "quantization_config", {{"quant_method", "bitsandbytes"}}),
              HasSubstr("quantization_config: quant_method: got \"bitsandbytes\""));
  EXPECT_THAT(error(llama, "num_local_experts", 8), HasSubstr("num_local_experts: got 8"));
  EXPECT_THAT(error(llama, "sliding_window", 4096), HasSubstr("sliding_window: got 4096"));
  EXPECT_THAT(error(llama, "partial_rotary_factor", 0.5), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(error(llama, "hidden_act", "mish"), HasSubstr("hidden_act: got \"mish\""));
  EXPECT_THAT(error(llama, "torch_dtype", "float8_e4m3fn"), HasSubstr("torch_dtype"));
  for (const char* type : {"su", "proportional"})
    EXPECT_THAT(error(llama, "rope_scaling", {{"rope_type", type}, {"factor", 2.0}}),
                HasSubstr(std::string("type \"") + type + "\" is not supported"));
  EXPECT_THAT(error(NewLlama(), "rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}),
              HasSubstr("one rope for all layers"));
  const json gpt2 = {{"architectures", {"GPT2LMHeadModel"}}};
  EXPECT_THAT(error(gpt2, "quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}),
              HasSubstr("quantised weights of GPT2LMHeadModel are not supported"));
  EXPECT_THAT(error(gpt2, "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(error(gpt2, "scale_attn_weights", false), HasSubstr("scale_attn_weights"));
  EXPECT_THAT(error(gpt2, "add_cross_attention", true), HasSubstr("add_cross_attention"));
}

TEST(HfConfig, NamesTheFieldThatIsWrong) {
  const auto error = [](const char* field, json value) {
    json config = OldLlama();
    config[field] = std::move(value);
    const Status status = Parse(config).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << field << ": " << status.ToString();
    return status.message();
  };
  EXPECT_EQ(error("vocab_size", -3),
            "config.json: vocab_size: got -3, a whole number from 1 to 2147483647 is needed");
  EXPECT_EQ(error("hidden_size", nullptr), "config.json: hidden_size: is missing");
  EXPECT_THAT(error("hidden_size", 2049), HasSubstr("no multiple of num_attention_heads 32"));
  EXPECT_THAT(error("num_key_value_heads", 7), HasSubstr("num_kv_heads"));
  EXPECT_THAT(error("rope_scaling", "linear"), HasSubstr("rope_scaling: got \"linear\""));
  EXPECT_THAT(error("rope_scaling", {{"type", "linear"}}), HasSubstr("factor: is missing"));
  EXPECT_THAT(error("rope_scaling", {{"type", "linear"}, {"factor", 0}}), HasSubstr("factor"));
  EXPECT_THAT(error("eos_token_id", "</s>"), HasSubstr("eos_token_id: got \"</s>\""));
  EXPECT_THAT(error("architectures", {"A", "B"}), HasSubstr("a list of one name"));
}

}  // namespace
}  // namespace inflight::builder

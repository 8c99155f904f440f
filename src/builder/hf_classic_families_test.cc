// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX, GPT-J, OPT and Falcon: published config.json, and the names of their checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "builder/hf_config.h"
#include "model/config_json.h"
#include "model/weight_slots.h"

namespace inflight::builder {
namespace {

using model::ModelConfig;
using nlohmann::json;
using testing::HasSubstr;

// The model that `config` describes; a checkpoint of it describes the same one.
ModelConfig ReadClassic(const json& config, json* checkpoint = nullptr) {
  const auto hf = ParseHfConfig(config, "config.json");
  EXPECT_TRUE(hf.ok()) << hf.status().ToString();
  if (!hf.ok()) return {};
  const json written = model::ConfigToCheckpoint(hf->config);
  if (checkpoint != nullptr) *checkpoint = written;
  const auto read = model::ConfigFromCheckpoint(written, "checkpoint");
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  if (!read.ok()) return {};
  EXPECT_EQ(model::ConfigToCheckpoint(*read), written);
  return *read;
}

std::string ErrorOfClassic(const json& config) {
  const Status status = ParseHfConfig(config, "config.json").status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
  return status.message();
}

bool HasSlot(const ModelConfig& config, std::string_view name) {
  model::DecoderWeights unused;
  const auto slots = model::WeightSlots(config, unused);
  return std::ranges::find(slots, name, &model::WeightSlot::name) != slots.end();
}

// EleutherAI/pythia-1.4b.
TEST(HfClassicFamilies, ReadsPythia) {
  json config = {{"architectures", {"GPTNeoXForCausalLM"}},
                 {"bos_token_id", 0},
                 {"eos_token_id", 0},
                 {"hidden_act", "gelu"},
                 {"hidden_size", 2048},
                 {"initializer_range", 0.02},
                 {"intermediate_size", 8192},
                 {"layer_norm_eps", 1e-05},
                 {"max_position_embeddings", 2048},
                 {"model_type", "gpt_neox"},
                 {"num_attention_heads", 16},
                 {"num_hidden_layers", 24},
                 {"rotary_emb_base", 10000},
                 {"rotary_pct", 0.25},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "float16"},
                 {"use_cache", true},
                 {"use_parallel_residual", true},
                 {"vocab_size", 50304}};
  json checkpoint;
  const ModelConfig m = ReadClassic(config, &checkpoint);
  EXPECT_TRUE(m.parallel_residual);
  EXPECT_FALSE(m.has_shared_norm);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(RotaryDim(m), 32);
  EXPECT_TRUE(m.qkv_bias && m.dense_bias && m.mlp_bias);
  EXPECT_EQ(m.activation, ops::ActivationKind::kGelu);
  // NVIDIA/TensorRT-LLM/examples/gptneox/convert_checkpoint.py.
  EXPECT_EQ(checkpoint["rotary_emb_base"], 10000);
  EXPECT_EQ(checkpoint["rotary_pct"], 0.25);
  EXPECT_FALSE(checkpoint.contains("rotary_base"));
  EXPECT_TRUE(HasSlot(m, "transformer.layers.23.post_attention_layernorm.bias"));
  checkpoint["position_embedding_type"] = "learned_absolute";  // as it says there
  const auto read = model::ConfigFromCheckpoint(checkpoint, "checkpoint");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->position, model::PositionKind::kRopeNeox);

  config["use_parallel_residual"] = false;
  EXPECT_FALSE(ReadClassic(config).parallel_residual);
  for (const char* name : {"rotary_emb_base", "rotary_pct"}) config.erase(name);
  EXPECT_EQ(ReadClassic(config).rotary_fraction, 0.25);
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 25000.0}, {"partial_rotary_factor", 1.0}};
  EXPECT_EQ(ReadClassic(config).rotary_fraction, 1);
  EXPECT_EQ(ReadClassic(config).rope_theta, 25000);
}

// EleutherAI/gpt-j-6b.
TEST(HfClassicFamilies, ReadsGptJ) {
  json config = {{"activation_function", "gelu_new"},
                 {"architectures", {"GPTJForCausalLM"}},
                 {"attn_pdrop", 0.0},
                 {"bos_token_id", 50256},
                 {"embd_pdrop", 0.0},
                 {"eos_token_id", 50256},
                 {"gradient_checkpointing", false},
                 {"initializer_range", 0.02},
                 {"layer_norm_epsilon", 1e-05},
                 {"model_type", "gptj"},
                 {"n_embd", 4096},
                 {"n_head", 16},
                 {"n_inner", nullptr},
                 {"n_layer", 28},
                 {"n_positions", 2048},
                 {"resid_pdrop", 0.0},
                 {"rotary", true},
                 {"rotary_dim", 64},
                 {"scale_attn_weights", true},
                 {"tie_word_embeddings", false},
                 {"use_cache", true},
                 {"vocab_size", 50400}};
  json checkpoint;
  const ModelConfig m = ReadClassic(config, &checkpoint);
  EXPECT_TRUE(m.parallel_residual && m.has_shared_norm);
  EXPECT_EQ(m.position, model::PositionKind::kRopeGptj);
  EXPECT_EQ(RotaryDim(m), 64);
  EXPECT_EQ(m.intermediate_size, 16384);
  // NVIDIA/TensorRT-LLM/tensorrt_llm/models/gptj/{config,convert}.py.
  EXPECT_EQ(checkpoint["position_embedding_type"], "rope_gptj");
  EXPECT_EQ(checkpoint["rotary_dim"], 64);
  EXPECT_TRUE(HasSlot(m, "lm_head.bias"));
  EXPECT_TRUE(HasSlot(m, "transformer.layers.0.mlp.proj.bias"));
  for (const char* name : {"post_layernorm.weight", "attention.qkv.bias", "attention.dense.bias"})
    EXPECT_FALSE(HasSlot(m, std::string("transformer.layers.0.") + name)) << name;
  // Not exact in binary.
  config["n_embd"] = 56 * 16;
  for (int dim = 2; dim <= 56; dim += 2) {
    config["rotary_dim"] = dim;
    EXPECT_EQ(RotaryDim(ReadClassic(config)), dim);
  }
}

// facebook/opt-6.7b, and what facebook/opt-350m has beside it.
TEST(HfClassicFamilies, ReadsOpt) {
  json config = {{"_remove_final_layer_norm", false},
                 {"activation_dropout", 0.0},
                 {"activation_function", "relu"},
                 {"architectures", {"OPTForCausalLM"}},
                 {"attention_dropout", 0.0},
                 {"bos_token_id", 2},
                 {"do_layer_norm_before", true},
                 {"dropout", 0.1},
                 {"eos_token_id", 2},
                 {"ffn_dim", 16384},
                 {"hidden_size", 4096},
                 {"init_std", 0.02},
                 {"layerdrop", 0.0},
                 {"max_position_embeddings", 2048},
                 {"model_type", "opt"},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 32},
                 {"pad_token_id", 1},
                 {"prefix", "</s>"},
                 {"torch_dtype", "float16"},
                 {"use_cache", true},
                 {"vocab_size", 50272},
                 {"word_embed_proj_dim", 4096}};
  json checkpoint;
  const ModelConfig m = ReadClassic(config, &checkpoint);
  EXPECT_EQ(m.position, model::PositionKind::kLearnedAbsolute);
  EXPECT_EQ(m.activation, ops::ActivationKind::kRelu);
  EXPECT_TRUE(m.tied_embeddings);
  EXPECT_TRUE(m.qkv_bias && m.dense_bias && m.mlp_bias);
  EXPECT_EQ(checkpoint["position_embedding_type"], "learned_absolute");
  EXPECT_EQ(checkpoint["do_layer_norm_before"], true);
  json other = config;
  other["do_layer_norm_before"] = false;
  EXPECT_THAT(ErrorOfClassic(other), HasSubstr("do_layer_norm_before: got false"));
  other = config;
  other["word_embed_proj_dim"] = 512;
  EXPECT_THAT(ErrorOfClassic(other), HasSubstr("word_embed_proj_dim: got 512"));
}

// tiiuae/falcon-7b.
json Falcon7b() {
  return {{"alibi", false},
          {"apply_residual_connection_post_layernorm", false},
          {"architectures", {"FalconForCausalLM"}},
          {"attention_dropout", 0.0},
          {"bias", false},
          {"bos_token_id", 11},
          {"eos_token_id", 11},
          {"hidden_dropout", 0.0},
          {"hidden_size", 4544},
          {"initializer_range", 0.02},
          {"layer_norm_epsilon", 1e-05},
          {"model_type", "falcon"},
          {"multi_query", true},
          {"new_decoder_architecture", false},
          {"num_attention_heads", 71},
          {"num_hidden_layers", 32},
          {"parallel_attn", true},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true},
          {"vocab_size", 65024}};
}

TEST(HfClassicFamilies, ReadsFalcon) {
  json checkpoint;
  const ModelConfig m = ReadClassic(Falcon7b(), &checkpoint);
  EXPECT_TRUE(m.parallel_residual && m.has_shared_norm && m.tied_embeddings);
  EXPECT_EQ(m.num_kv_heads, 1);
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_EQ(m.intermediate_size, 4 * 4544);
  EXPECT_FALSE(m.qkv_bias || m.dense_bias || m.mlp_bias);
  // NVIDIA/TensorRT-LLM/tensorrt_llm/models/falcon/{config,convert}.py.
  EXPECT_EQ(checkpoint["num_key_value_heads"], 1);
  EXPECT_EQ(checkpoint["parallel_attention"], true);
  EXPECT_EQ(checkpoint["new_decoder_architecture"], false);
  EXPECT_EQ(checkpoint["bias"], false);
  EXPECT_FALSE(HasSlot(m, "transformer.layers.0.post_layernorm.weight"));

  json other = Falcon7b();
  other["parallel_attn"] = false;
  EXPECT_TRUE(HasSlot(ReadClassic(other), "transformer.layers.0.post_layernorm.weight"));
  EXPECT_FALSE(ReadClassic(other).parallel_residual);
  other["multi_query"] = false;
  EXPECT_EQ(ReadClassic(other).num_kv_heads, 71);
  other["alibi"] = true;  // tiiuae/falcon-rw-1b
  EXPECT_THAT(ErrorOfClassic(other), HasSubstr("alibi: got true, only false is supported"));
  other = Falcon7b();
  other["num_ln_in_parallel_attn"] = 2;
  EXPECT_THAT(ErrorOfClassic(other), HasSubstr("num_ln_in_parallel_attn: got 2"));
}

// tiiuae/falcon-40b and tiiuae/falcon-11B in what sets them apart.
TEST(HfClassicFamilies, ReadsTheNewerFalcons) {
  json config = Falcon7b();
  config.update({{"hidden_size", 8192},
                 {"new_decoder_architecture", true},
                 {"num_attention_heads", 128},
                 {"num_hidden_layers", 60},
                 {"num_kv_heads", 8}});
  json checkpoint;
  ModelConfig m = ReadClassic(config, &checkpoint);
  EXPECT_TRUE(m.parallel_residual);
  EXPECT_FALSE(m.has_shared_norm);
  EXPECT_EQ(m.num_kv_heads, 8);
  EXPECT_TRUE(HasSlot(m, "transformer.layers.0.mlp_layernorm.bias"));
  EXPECT_EQ(checkpoint["new_decoder_architecture"], true);
  EXPECT_FALSE(checkpoint.contains("num_ln_in_parallel_attn"));
  config.update({{"hidden_size", 4096},
                 {"num_attention_heads", 32},
                 {"ffn_hidden_size", 16384},
                 {"max_position_embeddings", 8192},
                 {"num_ln_in_parallel_attn", 1},
                 {"rope_theta", 500042.0}});
  m = ReadClassic(config);
  EXPECT_TRUE(m.has_shared_norm);
  EXPECT_FALSE(HasSlot(m, "transformer.layers.0.mlp_layernorm.bias"));
  EXPECT_EQ(m.rope_theta, 500042);
  config["parallel_attn"] = false;
  EXPECT_THAT(ErrorOfClassic(config), HasSubstr("parallel_attn: got false"));
}

}  // namespace
}  // namespace inflight::builder

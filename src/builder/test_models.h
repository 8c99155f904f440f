// SPDX-License-Identifier: Apache-2.0
// Tiny Hugging Face directories with known numbers, for the tests of conversion and building.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "artifact/safetensors.h"
#include "base/file.h"

namespace inflight::builder {

// Element i of tensor number t is t + i / 4096: exact in float32 and different everywhere.
inline std::vector<float> KnownValues(size_t tensor_idx, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(tensor_idx) + static_cast<float>(i) / 4096.0F;
  return values;
}

// Numbers in [-1, 1] that make a quantised row hold all its codes.
inline std::vector<float> WavyValues(size_t tensor_idx, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(1000 * tensor_idx + i));
  return values;
}

struct TestModel {
  nlohmann::json config;
  std::vector<artifact::TensorSpec> tensors;
  bool is_wavy = false;  // WavyValues, in place of KnownValues

  artifact::TensorSpec& Tensor(const std::string& name) {
    for (auto& tensor : tensors)
      if (tensor.name == name) return tensor;
    ADD_FAILURE() << name;
    return tensors.front();
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
  }
  std::vector<float> Values(const std::string& name) const {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].name == name) return ValuesOf(i);
    ADD_FAILURE() << name;
    return {};
  }
  std::vector<float> ValuesOf(size_t tensor_idx) const {
    const int64_t n = tensors[tensor_idx].shape.num_elements();
    return is_wavy ? WavyValues(tensor_idx, n) : KnownValues(tensor_idx, n);
  }
  void Write(const std::filesystem::path& dir) const {
    std::filesystem::create_directories(dir);
    ASSERT_TRUE(WriteFile(dir / "config.json", config.dump()).ok());
    auto writer = artifact::SafetensorsWriter::Create(dir / "model.safetensors", tensors);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<float> values = ValuesOf(i);
      ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }
};

// hidden 16, 2 query heads and 1 kv head of 8, vocabulary 10, one layer.
inline TestModel TinyLlama(int intermediate_size = 24) {
  const std::string layer = "model.layers.0.";
  return {{{"architectures", {"LlamaForCausalLM"}},
           {"hidden_size", 16},
           {"intermediate_size", intermediate_size},
           {"num_hidden_layers", 1},
           {"num_attention_heads", 2},
           {"num_key_value_heads", 1},
           {"vocab_size", 10},
           {"max_position_embeddings", 32},
           {"eos_token_id", 2},
           {"torch_dtype", "float32"}},
          {{"model.embed_tokens.weight", DType::kF32, {10, 16}},
           {layer + "self_attn.q_proj.weight", DType::kF32, {16, 16}},
           {layer + "self_attn.k_proj.weight", DType::kF32, {8, 16}},
           {layer + "self_attn.v_proj.weight", DType::kF32, {8, 16}},
           {layer + "self_attn.o_proj.weight", DType::kF32, {16, 16}},
           {layer + "mlp.gate_proj.weight", DType::kF32, {intermediate_size, 16}},
           {layer + "mlp.up_proj.weight", DType::kF32, {intermediate_size, 16}},
           {layer + "mlp.down_proj.weight", DType::kF32, {16, intermediate_size}},
           {layer + "input_layernorm.weight", DType::kF32, {16}},
           {layer + "post_attention_layernorm.weight", DType::kF32, {16}},
           {"model.norm.weight", DType::kF32, {16}},
           {"lm_head.weight", DType::kF32, {10, 16}}}};
}

// hidden 8, one head, vocabulary 10, one layer; Conv1D storage [in, out].
inline TestModel TinyGpt2() {
  const std::string layer = "transformer.h.0.";
  return {{{"architectures", {"GPT2LMHeadModel"}},
           {"n_embd", 8},
           {"n_head", 1},
           {"n_layer", 1},
           {"n_positions", 20},
           {"vocab_size", 10}},
          {{"transformer.wte.weight", DType::kF32, {10, 8}},
           {"transformer.wpe.weight", DType::kF32, {20, 8}},
           {layer + "ln_1.weight", DType::kF32, {8}},
           {layer + "ln_1.bias", DType::kF32, {8}},
           {layer + "attn.c_attn.weight", DType::kF32, {8, 24}},
           {layer + "attn.c_attn.bias", DType::kF32, {24}},
           {layer + "attn.c_proj.weight", DType::kF32, {8, 8}},
           {layer + "attn.c_proj.bias", DType::kF32, {8}},
           {layer + "ln_2.weight", DType::kF32, {8}},
           {layer + "ln_2.bias", DType::kF32, {8}},
           {layer + "mlp.c_fc.weight", DType::kF32, {8, 32}},
           {layer + "mlp.c_fc.bias", DType::kF32, {32}},
           {layer + "mlp.c_proj.weight", DType::kF32, {32, 8}},
           {layer + "mlp.c_proj.bias", DType::kF32, {8}},
           {"transformer.ln_f.weight", DType::kF32, {8}},
           {"transformer.ln_f.bias", DType::kF32, {8}}}};
}

// The name of a matrix of an expert of MixtralOf: "w1", "w2" or "w3".
inline std::string ExpertName(int expert, const char* part) {
  return "model.layers.0.block_sparse_moe.experts." + std::to_string(expert) + "." + part +
         ".weight";
}

// One layer of experts of `inner` features on a residual stream of 64; query heads of 64 features
// together and half as many kv heads; vocabulary 10.
inline TestModel MixtralOf(int num_heads, int num_experts, int inner) {
  constexpr int kHidden = 64;
  const std::string layer = "model.layers.0.";
  TestModel model = {{{"architectures", {"MixtralForCausalLM"}},
                      {"hidden_size", kHidden},
                      {"intermediate_size", inner},
                      {"num_hidden_layers", 1},
                      {"num_attention_heads", num_heads},
                      {"num_key_value_heads", num_heads / 2},
                      {"num_local_experts", num_experts},
                      {"num_experts_per_tok", 2},
                      {"vocab_size", 10},
                      {"max_position_embeddings", 32},
                      {"eos_token_id", 2},
                      {"torch_dtype", "float32"}},
                     {{"model.embed_tokens.weight", DType::kF32, {10, kHidden}},
                      {layer + "self_attn.q_proj.weight", DType::kF32, {64, kHidden}},
                      {layer + "self_attn.k_proj.weight", DType::kF32, {32, kHidden}},
                      {layer + "self_attn.v_proj.weight", DType::kF32, {32, kHidden}},
                      {layer + "self_attn.o_proj.weight", DType::kF32, {kHidden, 64}},
                      {layer + "input_layernorm.weight", DType::kF32, {kHidden}},
                      {layer + "post_attention_layernorm.weight", DType::kF32, {kHidden}},
                      {layer + "block_sparse_moe.gate.weight", DType::kF32, {num_experts, kHidden}},
                      {"model.norm.weight", DType::kF32, {kHidden}},
                      {"lm_head.weight", DType::kF32, {10, kHidden}}}};
  for (int e = 0; e < num_experts; ++e) {
    model.tensors.push_back({ExpertName(e, "w1"), DType::kF32, {inner, kHidden}});
    model.tensors.push_back({ExpertName(e, "w2"), DType::kF32, {kHidden, inner}});
    model.tensors.push_back({ExpertName(e, "w3"), DType::kF32, {inner, kHidden}});
  }
  return model;
}

}  // namespace inflight::builder

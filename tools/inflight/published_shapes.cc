// SPDX-License-Identifier: Apache-2.0
#include "published_shapes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/status_macros.h"
#include "builder/hf_config.h"
#include "model/weight_slots.h"

namespace inflight::tool {
namespace {

struct Shape {
  const char* name;
  const char* model;   // on the hub
  const char* config;  // what its config.json says of the shape
};

constexpr Shape kShapes[] = {
    {"llama-3.2-1b", "meta-llama/Llama-3.2-1B", R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
      "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 32,
        "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": true})"},
    {"llama-3-8b", "meta-llama/Llama-3.1-8B", R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
      "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8,
        "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": false})"},
    {"llama-3-70b", "meta-llama/Llama-3.1-70B", R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
      "vocab_size": 128256, "hidden_size": 8192, "num_hidden_layers": 80,
      "num_attention_heads": 64, "num_key_value_heads": 8,
      "intermediate_size": 28672, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8,
        "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": false})"},
    {"qwen3-8b", "Qwen/Qwen3-8B", R"({
      "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
      "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 36,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 12288, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000, "tie_word_embeddings": false})"},
    {"qwen3-8b-fp8", "Qwen/Qwen3-8B-FP8", R"({
      "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
      "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 36,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 12288, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000, "tie_word_embeddings": false,
      "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})"},
    {"mistral-7b", "mistralai/Mistral-7B-v0.3", R"({
      "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu",
      "vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false})"},
    {"gemma-3-12b", "google/gemma-3-12b-pt, its part that reads text", R"({
      "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
      "hidden_activation": "gelu_pytorch_tanh",
      "vocab_size": 262208, "hidden_size": 3840, "num_hidden_layers": 48,
      "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
      "query_pre_attn_scalar": 256, "sliding_window": 1024, "sliding_window_pattern": 6,
      "intermediate_size": 15360, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000, "rope_local_base_freq": 10000,
      "rope_scaling": {"rope_type": "linear", "factor": 8}, "tie_word_embeddings": true})"},
    {"deepseek-r1-distill-qwen-32b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", R"({
      "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
      "vocab_size": 152064, "hidden_size": 5120, "num_hidden_layers": 64,
      "num_attention_heads": 40, "num_key_value_heads": 8,
      "intermediate_size": 27648, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000, "use_sliding_window": false, "tie_word_embeddings": false})"},
    {"gpt-oss-20b", "openai/gpt-oss-20b", R"({
      "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_act": "silu",
      "vocab_size": 201088, "hidden_size": 2880, "num_hidden_layers": 24,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 2880, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32, "beta_fast": 32,
        "beta_slow": 1, "original_max_position_embeddings": 4096, "truncate": false},
      "attention_bias": true, "sliding_window": 128, "num_local_experts": 32,
      "num_experts_per_tok": 4, "swiglu_limit": 7, "tie_word_embeddings": false,
      "quantization_config": {"quant_method": "mxfp4"}})"},
    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
      "intermediate_size": 6144, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000, "num_experts": 128, "num_experts_per_tok": 8,
      "moe_intermediate_size": 768, "norm_topk_prob": true, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "tie_word_embeddings": false})"},
    {"qwen3-30b-a3b-fp8", "Qwen/Qwen3-30B-A3B-FP8", R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
      "intermediate_size": 6144, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000, "num_experts": 128, "num_experts_per_tok": 8,
      "moe_intermediate_size": 768, "norm_topk_prob": true, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "tie_word_embeddings": false,
      "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})"},
    {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", R"({
      "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu",
      "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000, "sliding_window": null, "num_local_experts": 8,
      "num_experts_per_tok": 2, "tie_word_embeddings": false})"},
};

// The forms that linears of the layers have as they are published: of "mxfp4" experts', of "fp8"
// all.
void SetPublishedForms(std::string_view method, model::ModelConfig& config) {
  const bool is_mxfp4 = method == "mxfp4";
  const model::LinearForm form =
      is_mxfp4 ? model::LinearForm{.dtype = DType::kF4E2M1, .group_size = model::kMxGroupSize}
               : model::LinearForm{.dtype = DType::kF8E4M3, .group_size = model::kFp8GroupSize};
  model::DecoderWeights unused;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
    if (slot.is_linear && slot.layer >= 0 && (slot.num_experts > 0 || !is_mxfp4))
      config.slot_forms[slot.name.substr(0, slot.name.rfind('.'))] = form;
  config.quant_algo = model::QuantAlgo::kMixedPrecision;
}

}  // namespace

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names = {""};
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

Result<model::ModelConfig> ShapeByName(const std::string& name) {
  for (const Shape& shape : kShapes) {
    if (name != shape.name) continue;
    const nlohmann::json config = nlohmann::json::parse(shape.config);
    ASSIGN_OR_RETURN(builder::HfConfig read, builder::ParseHfConfig(config, shape.model));
    if (const auto found = config.find("quantization_config"); found != config.end())
      SetPublishedForms(found->at("quant_method").get<std::string>(), read.config);
    return read.config;
  }
  return InvalidArgument(fmt::format("shape: got '{}', needs one of those of --shape", name));
}

}  // namespace inflight::tool

// SPDX-License-Identifier: Apache-2.0
// GPT-2: LayerNorm before attention and before a feed-forward of two matrices, learned positions,
// biases everywhere.
// Hugging Face: huggingface/transformers/src/transformers/models/gpt2/configuration_gpt2.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Gpt2() {
  return {
      .architecture = "GPT2LMHeadModel",
      .model_type = "gpt2",
      .config = {.norm = ops::NormKind::kLayerNorm,
                 .activation = ops::ActivationKind::kGeluTanh,
                 .gated_mlp = false,
                 .qkv_bias = true,
                 .dense_bias = true,
                 .mlp_bias = true,
                 .position = PositionKind::kLearnedAbsolute},
      .hugging_face = Replaced(
          HuggingFaceRefusals(),
          {
              NumberOr("vocab_size", &ModelConfig::vocab_size, 50257),
              NumberOr("n_embd", &ModelConfig::hidden_size, 768),
              NumberOr("n_layer", &ModelConfig::num_layers, 12),
              NumberOr("n_head", &ModelConfig::num_heads, 12),
              Derived(&ModelConfig::num_kv_heads, [](const ModelConfig& c) { return c.num_heads; }),
              NumberOr("n_inner", &ModelConfig::intermediate_size,
                       [](const ModelConfig& c) { return int64_t{4} * c.hidden_size; }),
              NumberOr("n_positions", &ModelConfig::max_position_embeddings, 1024),
              HeadDim("", "n_embd", "n_head"),
              RealOr("layer_norm_epsilon", &ModelConfig::norm_eps, 1e-5),
              FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, true),
              Only("scale_attn_weights", true),
              Only("scale_attn_by_inverse_layer_idx", false),
              Activation("activation_function", ActivationNames::kHuggingFace, "gelu_new"),
          }),
      .checkpoint = Replaced(
          SharedCheckpointFields(),
          {
              LearnedPositions(),
              Constant("gpt_variant", "gpt2"),
              FlagOr("bias",
                     {&ModelConfig::qkv_bias, &ModelConfig::dense_bias, &ModelConfig::mlp_bias},
                     true),
              Constant("q_scaling", 1.0),
          }),
      .tensors = {.prefix = "transformer.",
                  .layer_prefix = "h.",
                  .model_rows = {{"transformer.vocab_embedding", {"wte"}},
                                 {"transformer.position_embedding", {"wpe"}},
                                 {"transformer.ln_f", {"ln_f"}}},
                  .layer_rows = {{"input_layernorm", {"ln_1"}},
                                 {"attention.qkv", {"attn.c_attn"}},
                                 {"attention.dense", {"attn.c_proj"}},
                                 {"post_layernorm", {"ln_2"}},
                                 {"mlp.fc", {"mlp.c_fc"}},
                                 {"mlp.proj", {"mlp.c_proj"}}},
                  .has_conv1d = true,
                  .ignorable = {"attn.bias", "attn.masked_bias"}},
      .gguf = {.architecture = "gpt2",
               .fields = GgufPlainFields(kGgufEpsilon),
               .tensors = {.layer_prefix = "blk.",
                           .model_rows = {{"transformer.vocab_embedding", {"token_embd"}},
                                          {"transformer.position_embedding", {"position_embd"}},
                                          {"transformer.ln_f", {"output_norm"}}},
                           .layer_rows = {{"input_layernorm", {"attn_norm"}},
                                          {"attention.qkv", {"attn_qkv"}},
                                          {"attention.dense", {"attn_output"}},
                                          {"post_layernorm", {"ffn_norm"}},
                                          {"mlp.fc", {"ffn_up"}},
                                          {"mlp.proj", {"ffn_down"}}},
                           .head = "output",
                           .has_whole_norms = true}},
  };
}

}  // namespace inflight::model

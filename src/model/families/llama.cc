// SPDX-License-Identifier: Apache-2.0
// Llama 1, 2, 3, 3.1, 3.2, and what shares their graph: RMSNorm before attention and before a gated
// feed-forward, rotary positions, grouped-query attention.
// Hugging Face: huggingface/transformers/src/transformers/models/llama/configuration_llama.py.
// GGUF: architecture "llama", with q's and k's rows as the original release has them
// (LlamaModel.permute of ggml-org/llama.cpp/convert_hf_to_gguf.py).
#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Llama() {
  return {
      .architecture = "LlamaForCausalLM",
      .model_type = "llama",
      .config = {.norm = ops::NormKind::kRmsNorm,
                 .activation = ops::ActivationKind::kSilu,
                 .gated_mlp = true,
                 .position = PositionKind::kRopeNeox},
      .hugging_face = Replaced(
          Replaced(
              HuggingFaceRefusals(),
              {
                  Number("vocab_size", &ModelConfig::vocab_size),
                  Number("hidden_size", &ModelConfig::hidden_size),
                  Number("num_hidden_layers", &ModelConfig::num_layers),
                  Number("num_attention_heads", &ModelConfig::num_heads),
                  Number("intermediate_size", &ModelConfig::intermediate_size),
                  NumberOr("num_key_value_heads", &ModelConfig::num_kv_heads,
                           [](const ModelConfig& c) { return c.num_heads; }),
                  NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 2048),
                  HeadDim("head_dim", "hidden_size", "num_attention_heads"),
                  RealOr("rms_norm_eps", &ModelConfig::norm_eps, 1e-6),
                  FlagOr("attention_bias", {&ModelConfig::qkv_bias, &ModelConfig::dense_bias},
                         false),
                  FlagOr("mlp_bias", {&ModelConfig::mlp_bias}, false),
                  FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, false),
                  Activation("hidden_act", ActivationNames::kHuggingFace, "silu"),
              }),
          HuggingFaceRope()),
      .checkpoint = Replaced(
          Replaced(SharedCheckpointFields(), CheckpointRope()),
          {
              FlagOr("attn_bias", {&ModelConfig::qkv_bias, &ModelConfig::dense_bias}, false),
              FlagOr("mlp_bias", {&ModelConfig::mlp_bias}, false),
          }),
      .tensors = {.prefix = "model.",
                  .layer_prefix = "layers.",
                  .model_rows = {{"transformer.vocab_embedding", {"embed_tokens"}},
                                 {"transformer.ln_f", {"norm"}}},
                  .layer_rows = {{"input_layernorm", {"input_layernorm"}},
                                 {"attention.qkv",
                                  {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                                 {"attention.dense", {"self_attn.o_proj"}},
                                 {"post_layernorm", {"post_attention_layernorm"}},
                                 {"mlp.fc", {"mlp.gate_proj"}},
                                 {"mlp.gate", {"mlp.up_proj"}},
                                 {"mlp.proj", {"mlp.down_proj"}}},
                  .ignorable = {"rotary_emb.inv_freq"}},
      .gguf = {.architecture = "llama",
               .fields = GgufFields(),
               .tensors = {.prefix = "",
                           .layer_prefix = "blk.",
                           .model_rows = {{"transformer.vocab_embedding", {"token_embd"}},
                                          {"transformer.ln_f", {"output_norm"}}},
                           .layer_rows = {{"input_layernorm", {"attn_norm"}},
                                          {"attention.qkv", {"attn_q", "attn_k", "attn_v"}},
                                          {"attention.dense", {"attn_output"}},
                                          {"post_layernorm", {"ffn_norm"}},
                                          {"mlp.fc", {"ffn_gate"}},
                                          {"mlp.gate", {"ffn_up"}},
                                          {"mlp.proj", {"ffn_down"}}},
                           // read with the metadata
                           .ignorable = {"rope_freqs.weight", "rope_factors_long.weight",
                                         "rope_factors_short.weight"},
                           .head = "output",
                           .has_whole_norms = true,
                           .paired = {"attn_q", "attn_k"}}},
  };
}

}  // namespace inflight::model

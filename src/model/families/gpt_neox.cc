// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia: attention and feed-forward beside each other, or behind each other where a
// file says so, LayerNorm before each, positions on a part of each head, biases, query, key and
// value of a head in one stored tensor side by side. Hugging Face:
// huggingface/transformers/src/transformers/models/gpt_neox/configuration_gpt_neox.py.
// Checkpoints: NVIDIA/TensorRT-LLM/examples/gptneox/convert_checkpoint.py, which calls the
// positions learned_absolute, and means rotary ones.
#include <nlohmann/json.hpp>
#include <utility>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {
namespace {

Fields CheckpointNeoXRope() {
  Fields rows = CheckpointRope();
  for (Field& row : rows) {
    if (row.name == "position_embedding_type")
      row.read = [name = row.name, read = row.read](artifact::JsonFields& fields,
                                                    ModelConfig& config) {
        if (fields.StringOr(name, "") == "learned_absolute") return Status::Ok();
        return read(fields, config);
      };
    if (row.name == "rotary_base") row = RealOr("rotary_emb_base", &ModelConfig::rope_theta, 10000);
    if (row.name == "rotary_pct") row = RealOr(row.name, &ModelConfig::rotary_fraction, 1);
  }
  return rows;
}

}  // namespace

Family GptNeoX() {
  const std::vector<bool ModelConfig::*> biases = {&ModelConfig::qkv_bias,
                                                   &ModelConfig::dense_bias};
  const Field is_parallel =
      FlagOr("use_parallel_residual", {&ModelConfig::parallel_residual}, true);
  return {
      .architecture = "GPTNeoXForCausalLM",
      .model_type = "gpt_neox",
      .config = {.norm = ops::NormKind::kLayerNorm,
                 .mlp_norm_name = "post_attention_layernorm",
                 .activation = ops::ActivationKind::kGelu,
                 .gated_mlp = false,
                 .mlp_bias = true,
                 .position = PositionKind::kRopeNeox},
      .hugging_face = Replaced(
          Replaced(
              HuggingFaceRefusals(),
              {
                  NumberOr("vocab_size", &ModelConfig::vocab_size, 50432),
                  NumberOr("hidden_size", &ModelConfig::hidden_size, 6144),
                  NumberOr("num_hidden_layers", &ModelConfig::num_layers, 44),
                  NumberOr("num_attention_heads", &ModelConfig::num_heads, 64),
                  Derived(&ModelConfig::num_kv_heads,
                          [](const ModelConfig& c) { return c.num_heads; }),
                  NumberOr("intermediate_size", &ModelConfig::intermediate_size, 24576),
                  NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 2048),
                  HeadDim("", "hidden_size", "num_attention_heads"),
                  RealOr("layer_norm_eps", &ModelConfig::norm_eps, 1e-5),
                  FlagOr("attention_bias", biases, true),
                  FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, false),
                  Activation("hidden_act", ActivationNames::kHuggingFace, "gelu"),
                  is_parallel,
              }),
          HuggingFacePartialRope({.theta_field = "rotary_emb_base",
                                  .fraction_field = "rotary_pct",
                                  .fraction = 0.25})),
      .checkpoint = Replaced(Replaced(SharedCheckpointFields(), CheckpointNeoXRope()),
                             {FlagOr("attn_bias", biases, true), is_parallel}),
      .tensors = {.prefix = "gpt_neox.",
                  .layer_prefix = "layers.",
                  .model_rows = {{"transformer.vocab_embedding", {"embed_in"}},
                                 {"transformer.ln_f", {"final_layer_norm"}}},
                  .layer_rows = {{"input_layernorm", {"input_layernorm"}},
                                 {.checkpoint = "attention.qkv",
                                  .stored = {"attention.query_key_value"},
                                  .has_grouped_heads = true},
                                 {"attention.dense", {"attention.dense"}},
                                 {"post_attention_layernorm", {"post_attention_layernorm"}},
                                 {"mlp.fc", {"mlp.dense_h_to_4h"}},
                                 {"mlp.proj", {"mlp.dense_4h_to_h"}}},
                  .ignorable = {"rotary_emb.inv_freq", "attention.bias", "attention.masked_bias"},
                  .head = "embed_out",
                  .other_heads = {"lm_head"}},
      .gguf = {.architecture = "gptneox",
               .fields = Replaced(GgufFields(kGgufEpsilon),
                                  {RotaryDimension("rope.dimension_count", 0), is_parallel}),
               .tensors = {.layer_prefix = "blk.",
                           .model_rows = {{"transformer.vocab_embedding", {"token_embd"}},
                                          {"transformer.ln_f", {"output_norm"}}},
                           .layer_rows = {{"input_layernorm", {"attn_norm"}},
                                          {"attention.qkv", {"attn_qkv"}},
                                          {"attention.dense", {"attn_output"}},
                                          {"post_attention_layernorm", {"ffn_norm"}},
                                          {"mlp.fc", {"ffn_up"}},
                                          {"mlp.proj", {"ffn_down"}}},
                           .head = "output",
                           .has_whole_norms = true}},
  };
}

}  // namespace inflight::model

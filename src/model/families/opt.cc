// SPDX-License-Identifier: Apache-2.0
// OPT, but for its 350M model, whose norms stand behind what they follow: GPT-2 with relu and three
// tensors of query, key and value. The first two rows of its positions' table are not used.
// Hugging Face: huggingface/transformers/src/transformers/models/opt/configuration_opt.py.
// Checkpoints: NVIDIA/TensorRT-LLM/examples/opt/convert_checkpoint.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace inflight::model {
namespace {

Field EmbeddingWidth() {
  constexpr const char* kName = "word_embed_proj_dim";
  return {.name = kName,
          .read =
              [](artifact::JsonFields& fields, ModelConfig& config) {
                if (fields.IntOr(kName, config.hidden_size, 1, kMaxField) != config.hidden_size)
                  return Refuse(fields, kName, "only that of hidden_size is supported");
                return fields.status();
              },
          .write = {}};
}

}  // namespace

Family Opt() {
  const std::vector<bool ModelConfig::*> biases = {&ModelConfig::qkv_bias, &ModelConfig::dense_bias,
                                                   &ModelConfig::mlp_bias};
  return {
      .architecture = "OPTForCausalLM",
      .model_type = "opt",
      .config = {.norm = ops::NormKind::kLayerNorm,
                 .activation = ops::ActivationKind::kRelu,
                 .gated_mlp = false,
                 .position = PositionKind::kLearnedAbsolute},
      .hugging_face = Replaced(
          HuggingFaceRefusals(),
          {
              Only("do_layer_norm_before", true),
              NumberOr("vocab_size", &ModelConfig::vocab_size, 50272),
              NumberOr("hidden_size", &ModelConfig::hidden_size, 768),
              NumberOr("num_hidden_layers", &ModelConfig::num_layers, 12),
              NumberOr("num_attention_heads", &ModelConfig::num_heads, 12),
              Derived(&ModelConfig::num_kv_heads, [](const ModelConfig& c) { return c.num_heads; }),
              NumberOr("ffn_dim", &ModelConfig::intermediate_size, 3072),
              NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 2048),
              HeadDim("", "hidden_size", "num_attention_heads"),
              EmbeddingWidth(),
              FlagOr("enable_bias", biases, true),
              FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, true),
              Activation("activation_function", ActivationNames::kHuggingFace, "relu"),
              Only("layer_norm_elementwise_affine", true),
              Only("_remove_final_layer_norm", false),
          }),
      .checkpoint = Replaced(SharedCheckpointFields(),
                             {LearnedPositions(), Constant("do_layer_norm_before", true),
                              FlagOr("bias", biases, true)}),
      .tensors = {.prefix = "model.decoder.",
                  .other_prefixes = {"decoder."},
                  .layer_prefix = "layers.",
                  .model_rows = {{"transformer.vocab_embedding", {"embed_tokens"}},
                                 {.checkpoint = "transformer.position_embedding",
                                  .stored = {"embed_positions"},
                                  .skipped_rows = 2},
                                 {"transformer.ln_f", {"final_layer_norm"}}},
                  .layer_rows = {{"input_layernorm", {"self_attn_layer_norm"}},
                                 {"attention.qkv",
                                  {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                                 {"attention.dense", {"self_attn.out_proj"}},
                                 {"post_layernorm", {"final_layer_norm"}},
                                 {"mlp.fc", {"fc1"}},
                                 {"mlp.proj", {"fc2"}}}},
  };
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// GPT-J: attention and feed-forward beside each other behind one LayerNorm, neighbours of the first
// rotary_dim elements of a head rotated, biases of the feed-forward and of the head.
// Hugging Face: huggingface/transformers/src/transformers/models/gptj/configuration_gptj.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/gptj/config.py.
#include "model/families/family.h"

namespace inflight::model {

Family GptJ() {
  return {
      .architecture = "GPTJForCausalLM",
      .model_type = "gptj",
      .config = {.norm = ops::NormKind::kLayerNorm,
                 .parallel_residual = true,
                 .has_shared_norm = true,
                 .activation = ops::ActivationKind::kGeluTanh,
                 .gated_mlp = false,
                 .mlp_bias = true,
                 .head_bias = true,
                 .position = PositionKind::kRopeGptj},
      .hugging_face = Replaced(
          HuggingFaceRefusals(),
          {
              NumberOr("vocab_size", &ModelConfig::vocab_size, 50400),
              NumberOr("n_embd", &ModelConfig::hidden_size, 4096),
              NumberOr("n_layer", &ModelConfig::num_layers, 28),
              NumberOr("n_head", &ModelConfig::num_heads, 16),
              Derived(&ModelConfig::num_kv_heads, [](const ModelConfig& c) { return c.num_heads; }),
              NumberOr("n_inner", &ModelConfig::intermediate_size,
                       [](const ModelConfig& c) { return int64_t{4} * c.hidden_size; }),
              NumberOr("n_positions", &ModelConfig::max_position_embeddings, 2048),
              HeadDim("", "n_embd", "n_head"),
              RealOr("layer_norm_epsilon", &ModelConfig::norm_eps, 1e-5),
              FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, false),
              Activation("activation_function", ActivationNames::kHuggingFace, "gelu_new"),
              RotaryDimension("rotary_dim", 64),
          }),
      .checkpoint = Replaced(Replaced(SharedCheckpointFields(), CheckpointRope()),
                             {Ignored("rotary_pct"), RotaryDimension("rotary_dim", 64)}),
      .tensors = {.prefix = "transformer.",
                  .layer_prefix = "h.",
                  .model_rows = {{"transformer.vocab_embedding", {"wte"}},
                                 {"transformer.ln_f", {"ln_f"}}},
                  .layer_rows = {{"input_layernorm", {"ln_1"}},
                                 {"attention.qkv", {"attn.q_proj", "attn.k_proj", "attn.v_proj"}},
                                 {"attention.dense", {"attn.out_proj"}},
                                 {"mlp.fc", {"mlp.fc_in"}},
                                 {"mlp.proj", {"mlp.fc_out"}}},
                  .ignorable = {"attn.bias", "attn.masked_bias"}},
  };
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// Gemma: Llama's graph with embeddings times sqrt(hidden_size), norms of weight 1 + w, GeGLU and a
// head size of its own.
// Hugging Face: huggingface/transformers/src/transformers/models/gemma/configuration_gemma.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/gemma/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace inflight::model {

Family Gemma() {
  Family family = Llama();
  family.architecture = "GemmaForCausalLM";
  family.model_type = "gemma";
  family.config.activation = ops::ActivationKind::kGeluTanh;
  family.config.has_one_centered_norms = true;
  family.config.has_root_embedding_scale = true;
  family.hugging_face =
      Replaced(family.hugging_face,
               {
                   NumberOr("vocab_size", &ModelConfig::vocab_size, 256000),
                   NumberOr("hidden_size", &ModelConfig::hidden_size, 3072),
                   NumberOr("num_hidden_layers", &ModelConfig::num_layers, 28),
                   NumberOr("num_attention_heads", &ModelConfig::num_heads, 16),
                   NumberOr("intermediate_size", &ModelConfig::intermediate_size, 24576),
                   NumberOr("num_key_value_heads", &ModelConfig::num_kv_heads, 16),
                   NumberOr("head_dim", &ModelConfig::head_dim, 256),
                   NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 8192),
                   FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, true),
                   Ignored("mlp_bias"),
                   // The first files say gelu and mean its tanh form.
                   Activation("hidden_act", ActivationNames::kCheckpoint, "gelu_pytorch_tanh"),
                   Only("use_bidirectional_attention", false),
               });
  family.gguf.architecture = "gemma";
  family.gguf.tensors.paired.clear();
  return family;
}

}  // namespace inflight::model

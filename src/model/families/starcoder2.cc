// SPDX-License-Identifier: Apache-2.0
// StarCoder2: Llama with LayerNorm, a feed-forward of two matrices and biases everywhere, and maybe
// a window on every layer. Hugging Face:
// huggingface/transformers/src/transformers/models/starcoder2/configuration_starcoder2.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family StarCoder2() {
  Family family = Llama();
  family.architecture = "Starcoder2ForCausalLM";
  family.model_type = "starcoder2";
  family.config.norm = ops::NormKind::kLayerNorm;
  family.config.gated_mlp = false;
  const std::vector<bool ModelConfig::*> biases = {&ModelConfig::qkv_bias, &ModelConfig::dense_bias,
                                                   &ModelConfig::mlp_bias};
  family.hugging_face = Replaced(
      family.hugging_face,
      {Ignored("attention_bias"), Ignored("mlp_bias"), Ignored("rms_norm_eps"),
       NumberOr("num_key_value_heads", &ModelConfig::num_kv_heads, 2),
       NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 4096),
       RealOr("norm_epsilon", &ModelConfig::norm_eps, 1e-5), FlagOr("use_bias", biases, true),
       FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, true),
       Activation("hidden_act", ActivationNames::kHuggingFace, "gelu_pytorch_tanh"),
       HuggingFaceWindow(0)});
  // Of upstream's GPT graph, which these checkpoints name by gpt_variant.
  family.checkpoint = Replaced(
      family.checkpoint, {Ignored("attn_bias"), Ignored("mlp_bias"), FlagOr("bias", biases, true),
                          Constant("gpt_variant", "starcoder2")});
  family.checkpoint = Replaced(family.checkpoint, CheckpointWindows());
  family.tensors.layer_rows =
      Replaced(family.tensors.layer_rows, {{"mlp.fc", {"mlp.c_fc"}}, {"mlp.proj", {"mlp.c_proj"}}});
  // Files do not say the window of the published models, all of which have the same.
  family.config.activation = ops::ActivationKind::kGeluTanh;
  family.gguf.architecture = "starcoder2";
  family.gguf.fields =
      Replaced(GgufFields(kGgufEpsilon),
               {NumberOr("attention.sliding_window", &ModelConfig::sliding_window, 4096)});
  family.gguf.tensors.paired.clear();
  family.gguf.tensors.layer_rows =
      Replaced(family.gguf.tensors.layer_rows, {{"mlp.fc", {"ffn_up"}}});
  return family;
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// Gemma 2: Gemma with norms behind attention and feed-forward, too, soft caps of scores and logits,
// and a window on every other layer.
// Hugging Face: huggingface/transformers/src/transformers/models/gemma2/configuration_gemma2.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/gemma/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Gemma2() {
  Family family = Gemma();
  family.architecture = "Gemma2ForCausalLM";
  family.model_type = "gemma2";
  family.config.norm_placement = NormPlacement::kBoth;
  family.hugging_face = Replaced(
      family.hugging_face,
      {
          NumberOr("hidden_size", &ModelConfig::hidden_size, 2304),
          NumberOr("num_hidden_layers", &ModelConfig::num_layers, 26),
          NumberOr("num_attention_heads", &ModelConfig::num_heads, 8),
          NumberOr("intermediate_size", &ModelConfig::intermediate_size, 9216),
          NumberOr("num_key_value_heads", &ModelConfig::num_kv_heads, 4),
          Ignored("hidden_act"),
          Activation("hidden_activation", ActivationNames::kHuggingFace, "gelu_pytorch_tanh"),
          QueryPreAttnScalar(256),
          SoftCap("attn_logit_softcapping", &ModelConfig::attention_softcap, 50),
          SoftCap("final_logit_softcapping", &ModelConfig::logits_softcap, 30),
      });
  family.hugging_face = Replaced(family.hugging_face, HuggingFacePatternWindows(4096, 2, ""));
  family.checkpoint = Replaced(
      family.checkpoint, {
                             Constant("inter_layernorms", true),
                             QueryPreAttnScalar(256),
                             SoftCap("attn_logit_softcapping", &ModelConfig::attention_softcap, 0),
                             SoftCap("final_logit_softcapping", &ModelConfig::logits_softcap, 0),
                         });
  family.checkpoint = Replaced(family.checkpoint, CheckpointWindows());
  family.tensors.layer_rows = Replaced(
      family.tensors.layer_rows, {{"pre_feedforward_layernorm", {"pre_feedforward_layernorm"}},
                                  {"post_feedforward_layernorm", {"post_feedforward_layernorm"}}});
  family.gguf.architecture = "gemma2";
  family.gguf.fields =
      Replaced(family.gguf.fields,
               {
                   GgufAttentionScale(46),
                   SoftCap("attn_logit_softcapping", &ModelConfig::attention_softcap, 50),
                   SoftCap("final_logit_softcapping", &ModelConfig::logits_softcap, 30),
               });
  family.gguf.fields = Replaced(family.gguf.fields, GgufPatternWindows(4096, 2));
  family.gguf.tensors.layer_rows =
      Replaced(family.gguf.tensors.layer_rows, {{"post_layernorm", {"post_attention_norm"}},
                                                {"pre_feedforward_layernorm", {"ffn_norm"}},
                                                {"post_feedforward_layernorm", {"post_ffw_norm"}}});
  return family;
}

}  // namespace inflight::model

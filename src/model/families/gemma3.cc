// SPDX-License-Identifier: Apache-2.0
// Gemma 3, the models of text and the part that reads text of those that see images: Gemma 2 with
// a norm on each head of q and k in place of the cap of scores, a window on five layers of six, and
// a rope of its own for those.
// Hugging Face: huggingface/transformers/src/transformers/models/gemma3/configuration_gemma3.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/gemma/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Gemma3() {
  Family family = Gemma2();
  family.architecture = "Gemma3ForCausalLM";
  family.model_type = "gemma3_text";
  family.composites = {{"Gemma3ForConditionalGeneration", "gemma3", "text_config"}};
  family.config.qk_norm = true;
  family.hugging_face = Replaced(
      family.hugging_face,
      {
          NumberOr("vocab_size", &ModelConfig::vocab_size, 262208),
          NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 131072),
          Only("attn_logit_softcapping", nullptr),
          SoftCap("final_logit_softcapping", &ModelConfig::logits_softcap, 0),
      });
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceLayerRopes(1e6, 1e4));
  family.hugging_face =
      Replaced(family.hugging_face, HuggingFacePatternWindows(4096, 6, "sliding_window_pattern"));
  family.checkpoint = Replaced(
      family.checkpoint, {Written("qk_layernorm", true),
                          Constant("attn_logit_softcapping", nullptr), CheckpointSlidingRope()});
  family.tensors.other_heads = {"language_model.lm_head"};
  family.tensors.other_prefixes = {"language_model.model.", "model.language_model."};
  family.tensors.layer_rows =
      Replaced(family.tensors.layer_rows, {{"attention.q_layernorm", {"self_attn.q_norm"}},
                                           {"attention.k_layernorm", {"self_attn.k_norm"}}});
  family.gguf.architecture = "gemma3";
  family.gguf.fields = Replaced(
      family.gguf.fields, {
                              RealOr("rope.freq_base", &ModelConfig::rope_theta, 1e6),
                              GgufSlidingRope(1e4),
                              GgufAttentionScale(62),
                              Only("attn_logit_softcapping", 0),
                              SoftCap("final_logit_softcapping", &ModelConfig::logits_softcap, 0),
                          });
  family.gguf.fields = Replaced(family.gguf.fields, GgufPatternWindows(0, 6));
  family.gguf.tensors.layer_rows = Replaced(
      family.gguf.tensors.layer_rows,
      {{"attention.q_layernorm", {"attn_q_norm"}}, {"attention.k_layernorm", {"attn_k_norm"}}});
  return family;
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// OLMo 2: Llama with norms behind attention and feed-forward in place of those before them, and
// norms of all heads of q together and of all heads of k. Hugging Face:
// huggingface/transformers/src/transformers/models/olmo2/configuration_olmo2.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace inflight::model {

Family Olmo2() {
  Family family = Llama();
  family.architecture = "Olmo2ForCausalLM";
  family.model_type = "olmo2";
  family.config.norm_placement = NormPlacement::kPost;
  family.config.qk_norm = true;
  family.config.has_wide_qk_norm = true;
  family.hugging_face =
      Replaced(family.hugging_face,
               {RealOr("rms_norm_eps", &ModelConfig::norm_eps, 1e-5), Ignored("mlp_bias")});
  family.checkpoint = Replaced(family.checkpoint, {Constant("qk_layernorm", true)});
  family.tensors.layer_rows = Replaced(
      family.tensors.layer_rows, {{"attention.q_layernorm", {"self_attn.q_norm"}},
                                  {"attention.k_layernorm", {"self_attn.k_norm"}},
                                  {"post_feedforward_layernorm", {"post_feedforward_layernorm"}}});
  family.gguf.architecture = "olmo2";
  family.gguf.tensors.paired.clear();
  family.gguf.tensors.layer_rows =
      Replaced(family.gguf.tensors.layer_rows, {{"attention.q_layernorm", {"attn_q_norm"}},
                                                {"attention.k_layernorm", {"attn_k_norm"}},
                                                {"post_layernorm", {"post_attention_norm"}},
                                                {"post_feedforward_layernorm", {"post_ffw_norm"}}});
  return family;
}

}  // namespace inflight::model

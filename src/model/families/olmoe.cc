// SPDX-License-Identifier: Apache-2.0
// OLMoE: Llama with experts in every layer, and norms of all heads of q together and of all heads
// of k. Hugging Face:
// huggingface/transformers/src/transformers/models/olmoe/configuration_olmoe.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Olmoe() {
  Family family = Llama();
  family.architecture = "OlmoeForCausalLM";
  family.model_type = "olmoe";
  family.config.qk_norm = true;
  family.config.has_wide_qk_norm = true;
  family.hugging_face =
      Replaced(family.hugging_face,
               {NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 4096),
                RealOr("rms_norm_eps", &ModelConfig::norm_eps, 1e-5), Ignored("mlp_bias"),
                Unsupported("clip_qkv", "q, k and v are not clipped; only null is supported"),
                FlagOr("norm_topk_prob", {&ModelConfig::has_renormalized_experts}, false),
                Derived(&ModelConfig::expert_intermediate_size,
                        [](const ModelConfig& c) { return c.intermediate_size; })});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceExperts(64, 8));
  family.checkpoint = Replaced(family.checkpoint, {Constant("qk_layernorm", true)});
  family.checkpoint = Replaced(family.checkpoint, CheckpointExperts());
  family.tensors.layer_rows = WithExperts(
      Replaced(family.tensors.layer_rows, {{"attention.q_layernorm", {"self_attn.q_norm"}},
                                           {"attention.k_layernorm", {"self_attn.k_norm"}}}));
  family.gguf.architecture = "olmoe";
  family.gguf.fields = Replaced(family.gguf.fields, GgufExperts(/*are_renormalized=*/false));
  family.gguf.tensors.paired.clear();
  family.gguf.tensors.layer_rows = WithGgufExperts(Replaced(
      family.gguf.tensors.layer_rows,
      {{"attention.q_layernorm", {"attn_q_norm"}}, {"attention.k_layernorm", {"attn_k_norm"}}}));
  return family;
}

}  // namespace inflight::model

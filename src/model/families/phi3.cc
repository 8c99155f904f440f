// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4: Llama with q, k and v in one stored tensor, gate and up in another, maybe a
// window on every layer and positions on a part of each head. Hugging Face:
// huggingface/transformers/src/transformers/models/phi3/configuration_phi3.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Phi3() {
  Family family = Llama();
  family.architecture = "Phi3ForCausalLM";
  family.model_type = "phi3";
  family.hugging_face =
      Replaced(family.hugging_face,
               {Ignored("attention_bias"), Ignored("mlp_bias"),
                NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 4096),
                RealOr("rms_norm_eps", &ModelConfig::norm_eps, 1e-5), HuggingFaceWindow(0)});
  family.hugging_face = Replaced(family.hugging_face, HuggingFacePartialRope({.is_phi3 = true}));
  family.checkpoint = Replaced(family.checkpoint, CheckpointWindows());
  family.tensors.layer_rows = Replaced(
      family.tensors.layer_rows,
      {{"attention.qkv", {"self_attn.qkv_proj"}},
       {.checkpoint = "mlp.fc", .stored = {"mlp.gate_up_proj"}, .share = 0, .num_shares = 2},
       {.checkpoint = "mlp.gate", .stored = {"mlp.gate_up_proj"}, .share = 1, .num_shares = 2}});
  family.gguf.architecture = "phi3";
  family.gguf.tensors.paired.clear();
  family.gguf.tensors.layer_rows =
      Replaced(family.gguf.tensors.layer_rows,
               {{"attention.qkv", {"attn_qkv"}},
                {.checkpoint = "mlp.fc", .stored = {"ffn_up"}, .share = 0, .num_shares = 2},
                {.checkpoint = "mlp.gate", .stored = {"ffn_up"}, .share = 1, .num_shares = 2}});
  family.gguf.fields =
      Replaced(family.gguf.fields, {GgufWindow(), RotaryDimension("rope.dimension_count", 0)});
  return family;
}

}  // namespace inflight::model

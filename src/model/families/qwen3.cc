// SPDX-License-Identifier: Apache-2.0
// Qwen3, its dense models: Llama with a norm on each head of q and k, a head size of its own, and
// Qwen2's windows.
// Hugging Face: huggingface/transformers/src/transformers/models/qwen3/configuration_qwen3.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/qwen/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace inflight::model {

Family Qwen3() {
  Family family = Llama();
  family.architecture = "Qwen3ForCausalLM";
  family.model_type = "qwen3";
  family.config.qk_norm = true;
  family.hugging_face =
      Replaced(family.hugging_face,
               {NumberOr("head_dim", &ModelConfig::head_dim, 128), Ignored("mlp_bias")});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceLayerWindows(4096));
  // Upstream's checkpoints say false, and its graph goes by qwen_type.
  family.checkpoint =
      Replaced(family.checkpoint, {Written("qk_layernorm", true), Constant("qwen_type", "qwen3"),
                                   Only("use_logn_attn", false)});
  family.checkpoint = Replaced(family.checkpoint, CheckpointWindows());
  family.tensors.layer_rows =
      Replaced(family.tensors.layer_rows, {{"attention.q_layernorm", {"self_attn.q_norm"}},
                                           {"attention.k_layernorm", {"self_attn.k_norm"}}});
  family.gguf.architecture = "qwen3";
  family.gguf.tensors.paired.clear();
  family.gguf.tensors.layer_rows = Replaced(
      family.gguf.tensors.layer_rows,
      {{"attention.q_layernorm", {"attn_q_norm"}}, {"attention.k_layernorm", {"attn_k_norm"}}});
  return family;
}

}  // namespace inflight::model

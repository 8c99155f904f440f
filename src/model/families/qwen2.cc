// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: Llama with a bias on q, k and v alone, and where a file asks for it a window
// on the layers from max_window_layers on.
// Hugging Face: huggingface/transformers/src/transformers/models/qwen2/configuration_qwen2.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/qwen/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace inflight::model {

Family Qwen2() {
  Family family = Llama();
  family.architecture = "Qwen2ForCausalLM";
  family.model_type = "qwen2";
  family.config.qkv_bias = true;
  family.hugging_face =
      Replaced(family.hugging_face, {Ignored("attention_bias"), Ignored("mlp_bias")});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceLayerWindows(4096));
  family.checkpoint =
      Replaced(family.checkpoint, {FlagOr("attn_bias", {&ModelConfig::qkv_bias}, true),
                                   Constant("qwen_type", "qwen2"), Only("use_logn_attn", false)});
  family.checkpoint = Replaced(family.checkpoint, CheckpointWindows());
  family.gguf.architecture = "qwen2";
  family.gguf.tensors.paired.clear();
  return family;
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// Qwen3's models with experts: Qwen3 whose feed-forward is experts in all layers, or in some.
// Hugging Face:
// huggingface/transformers/src/transformers/models/qwen3_moe/configuration_qwen3_moe.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/qwen/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Qwen3Moe() {
  Family family = Qwen3();
  family.architecture = "Qwen3MoeForCausalLM";
  family.model_type = "qwen3_moe";
  family.hugging_face =
      Replaced(family.hugging_face,
               {HeadDim("head_dim", "hidden_size", "num_attention_heads"),
                HuggingFaceUsedWindow(4096), Ignored("layer_types"),
                NumberOr("moe_intermediate_size", &ModelConfig::expert_intermediate_size, 768),
                FlagOr("norm_topk_prob", {&ModelConfig::has_renormalized_experts}, false)});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceExperts(128, 8));
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceSparseLayers());
  family.checkpoint = Replaced(family.checkpoint, CheckpointExperts());
  family.checkpoint = Replaced(family.checkpoint, {Constant("qwen_type", "qwen3_moe")});
  family.tensors.layer_rows = WithExperts(family.tensors.layer_rows);
  family.gguf.architecture = "qwen3moe";
  family.gguf.fields = Replaced(family.gguf.fields, GgufExperts());
  family.gguf.tensors.layer_rows = WithGgufExperts(family.gguf.tensors.layer_rows);
  return family;
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// Mixtral: Mistral with experts in every layer, of which the chosen ones' weights add up to 1.
// Hugging Face: huggingface/transformers/src/transformers/models/mixtral/configuration_mixtral.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/llama/config.py.
#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Mixtral() {
  Family family = Mistral();
  family.architecture = "MixtralForCausalLM";
  family.model_type = "mixtral";
  family.hugging_face = Replaced(
      family.hugging_face,
      {HuggingFaceWindow(0), Derived(&ModelConfig::expert_intermediate_size,
                                     [](const ModelConfig& c) { return c.intermediate_size; })});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceExperts(8, 2));
  family.checkpoint = Replaced(family.checkpoint, CheckpointExperts());
  // Of each expert the linear branch before the activated one, as in checkpoints.
  family.tensors.layer_rows =
      Replaced(family.tensors.layer_rows,
               {{"mlp.router", {"block_sparse_moe.gate"}},
                {"mlp.fc", {"block_sparse_moe.experts.*.w3", "block_sparse_moe.experts.*.w1"}},
                {"mlp.proj", {"block_sparse_moe.experts.*.w2"}}});
  family.gguf = Llama().gguf;
  family.gguf.has_experts = true;
  family.gguf.fields = Replaced(family.gguf.fields, GgufExperts());
  family.gguf.tensors.layer_rows = WithGgufExperts(family.gguf.tensors.layer_rows);
  return family;
}

}  // namespace inflight::model

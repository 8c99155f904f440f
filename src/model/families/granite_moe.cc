// SPDX-License-Identifier: Apache-2.0
// Granite 3's models with experts: Granite with experts in every layer, each layer's in one stored
// tensor, of which the chosen ones' weights add up to 1. Hugging Face:
// huggingface/transformers/src/transformers/models/granitemoe/configuration_granitemoe.py.
#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family GraniteMoe() {
  Family family = Granite();
  family.architecture = "GraniteMoeForCausalLM";
  family.model_type = "granitemoe";
  family.hugging_face = Replaced(
      family.hugging_face,
      {Ignored("mlp_bias"), Derived(&ModelConfig::expert_intermediate_size,
                                    [](const ModelConfig& c) { return c.intermediate_size; })});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceExperts(8, 2));
  family.checkpoint = Replaced(family.checkpoint, CheckpointExperts());
  family.tensors.layer_rows =
      Replaced(family.tensors.layer_rows, {{"mlp.router", {"block_sparse_moe.router.layer"}},
                                           {.checkpoint = "mlp.fc",
                                            .stored = {"block_sparse_moe.input_linear"},
                                            .holds_experts = true,
                                            .has_activated_first = true},
                                           {.checkpoint = "mlp.proj",
                                            .stored = {"block_sparse_moe.output_linear"},
                                            .holds_experts = true}});
  family.gguf.architecture = "granitemoe";
  family.gguf.fields = Replaced(family.gguf.fields, GgufExperts());
  family.gguf.tensors.layer_rows = WithGgufExperts(family.gguf.tensors.layer_rows);
  return family;
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// Mistral 7B and its relatives: Llama with a window on every layer, or in later models none.
// Hugging Face: huggingface/transformers/src/transformers/models/mistral/configuration_mistral.py.
#include "model/families/family.h"

namespace inflight::model {

Family Mistral() {
  Family family = Llama();
  family.architecture = "MistralForCausalLM";
  family.model_type = "mistral";
  family.hugging_face =
      Replaced(family.hugging_face,
               {Ignored("attention_bias"), Ignored("mlp_bias"), HuggingFaceWindow(4096)});
  family.checkpoint = Replaced(family.checkpoint, CheckpointWindows());
  family.gguf = {};  // such files call themselves llama
  return family;
}

}  // namespace inflight::model

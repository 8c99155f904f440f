// SPDX-License-Identifier: Apache-2.0
// SmolLM3: Llama with layers that are not rotated, each fourth one unless a file lists them.
// Hugging Face: huggingface/transformers/src/transformers/models/smollm3/configuration_smollm3.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace inflight::model {

Family SmolLm3() {
  Family family = Llama();
  family.architecture = "SmolLM3ForCausalLM";
  family.model_type = "smollm3";
  family.hugging_face =
      Replaced(family.hugging_face,
               {NumberOr("num_key_value_heads", &ModelConfig::num_kv_heads, 4),
                NumberOr("max_position_embeddings", &ModelConfig::max_position_embeddings, 32768),
                FlagOr("tie_word_embeddings", {&ModelConfig::tied_embeddings}, true)});
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceRope(2e6));
  family.hugging_face = Replaced(family.hugging_face, HuggingFaceRopeLayers(4));
  family.checkpoint = Replaced(family.checkpoint, {CheckpointRopeLayers()});
  family.gguf.architecture = "smollm3";
  family.gguf.fields = Replaced(family.gguf.fields, HuggingFaceRopeLayers(4));
  return family;
}

}  // namespace inflight::model

// SPDX-License-Identifier: Apache-2.0
// Granite 3, its dense models: Llama with factors of embeddings, of what is added to the residual
// stream, of q k^T and of logits.
// Hugging Face: huggingface/transformers/src/transformers/models/granite/configuration_granite.py.
// Checkpoints: NVIDIA/TensorRT-LLM/tensorrt_llm/models/llama/config.py.
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/gguf_fields.h"

namespace inflight::model {

Family Granite() {
  Family family = Llama();
  family.architecture = "GraniteForCausalLM";
  family.model_type = "granite";
  family.hugging_face =
      Replaced(family.hugging_face,
               {RealOr("embedding_multiplier", &ModelConfig::embedding_scale, 1),
                RealOr("residual_multiplier", &ModelConfig::residual_multiplier, 1),
                AttentionMultiplier(1), Inverse("logits_scaling", &ModelConfig::logits_scale)});
  family.checkpoint = Replaced(
      family.checkpoint,
      {RealOr("embedding_multiplier", &ModelConfig::embedding_scale, 1),
       RealOr("residual_multiplier", &ModelConfig::residual_multiplier, 1), AttentionMultiplier(1),
       RealOr("output_multiplier_scale", &ModelConfig::logits_scale, 1)});
  family.gguf.architecture = "granite";
  family.gguf.fields =
      Replaced(family.gguf.fields,
               {RealOr("embedding_scale", &ModelConfig::embedding_scale, 1),
                RealOr("residual_scale", &ModelConfig::residual_multiplier, 1),
                GgufAttentionScale(0), Inverse("logit_scale", &ModelConfig::logits_scale),
                // Of models without positions.
                Only("rope.scaling.finetuned", true)});
  return family;
}

}  // namespace inflight::model

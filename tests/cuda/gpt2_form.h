// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"

namespace inflight::gpu {

// A decoder of the same sizes in the form of GPT-2's, with a kv head for each head.
inline model::ModelConfig AsGpt2(model::ModelConfig config) {
  config.architecture = "GPT2LMHeadModel";
  config.norm = ops::NormKind::kLayerNorm;
  config.activation = ops::ActivationKind::kGeluTanh;
  config.gated_mlp = false;
  config.attention_bias = true;
  config.mlp_bias = true;
  config.tied_embeddings = true;
  config.position = model::PositionKind::kLearnedAbsolute;
  config.num_kv_heads = config.num_heads;
  return config;
}

}  // namespace inflight::gpu

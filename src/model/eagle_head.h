// SPDX-License-Identifier: Apache-2.0
// A head of EAGLE (arXiv:2401.15077, arXiv:2406.16858) or EAGLE-3 (arXiv:2503.01840) in memory:
// one decoder layer that guesses a model's next state, and by it the token after the next one. What
// it computes is model/eagle_decoder.h.
#pragma once

#include <cstdint>
#include <vector>

#include "model/engine.h"
#include "tensor/buffer.h"

namespace inflight::model {

struct EagleConfig {
  int version = 1;  // 1, also of EAGLE-2, whose heads are the same; or 3
  // The layer's dimensions, rotary positions and norm_eps. Its dtype, vocab_size and hidden_size
  // are the model's.
  ModelConfig layer;
  bool fc_bias = false;
  // The embedding of tokens is its own: beside stages on GPUs, where each rank of the last one has
  // the head, whole, and none of them the model's table. Of version 1.
  bool has_table = false;
  int draft_vocab_size = 0;  // of the head's lm_head; of version 1 the model's vocab_size
  // Version 3: ascending, whose input residuals it reads (KeptResiduals).
  std::vector<int> target_layers;

  // Of what it reads of the model for a token: the state that lm_head reads, or those residuals.
  int feature_width() const {
    return layer.hidden_size * (version == 1 ? 1 : static_cast<int>(target_layers.size()));
  }
  // Of what the layer's projections of q, k and v read.
  int qkv_width() const { return layer.hidden_size * (version == 1 ? 1 : 2); }
  // Of what `fc` reads.
  int fc_width() const { return version == 1 ? 2 * layer.hidden_size : feature_width(); }
};

// Empty views where the version has no such tensor. Norms and biases are float32.
struct EagleWeights {
  ops::Weight table;  // [vocab_size, hidden_size], row-major; where the head has one
  ops::Weight fc;     // [hidden_size, fc_width]
  TensorView fc_bias;
  // Of version 3: of the token's embedding (layer.input_norm_weight), and of the state.
  TensorView hidden_norm;
  LayerWeights layer;  // qkv: [(num_heads + 2 num_kv_heads) * head_dim, qkv_width]
  // Version 3; version 1 has the model's.
  TensorView final_norm;
  ops::Weight lm_head;  // [draft_vocab_size, hidden_size]
  // [draft_vocab_size] which of the model's tokens each of the head's is; empty: the same.
  std::vector<int32_t> token_ids;
};

// Immutable after reading; shared by executors.
struct EagleHead {
  EagleConfig config;
  EagleWeights weights;
  uint64_t weight_bytes = 0;
  Buffer buffer;  // behind the views
};

}  // namespace inflight::model

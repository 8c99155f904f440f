// SPDX-License-Identifier: Apache-2.0
// All layers of a step of few decode rows in one operator, where a backend has such a kernel: of
// models like Llama (arXiv:2302.13971), whose layers are, for each token's residual h,
//
//   h = h + m Dense(Attention(Rope(Qkv(RmsNorm(h)))))
//   h = h + m Proj(act(Fc(RmsNorm(h))) * Gate(RmsNorm(h)))
//
// with the operators of attention.h and linear.h. Activations stay in the model's dtype between
// products, also beside FP8 weights.
#pragma once

#include <span>

#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/weight.h"
#include "tensor/tensor_view.h"

namespace inflight::ops {

// The weights of one layer, which stay where they are; norms [hidden_size] float32.
struct DecodeLayer {
  TensorView input_norm, post_norm;
  Weight qkv;
  TensorView qkv_bias;  // as of QkvRopeKvParams; empty = none
  Weight dense;
  Weight fc, gate;  // the activated branch and the linear one
  Weight proj;
};

struct DecodeLayersParams {
  TensorView residual;  // [num_tokens, hidden_size] of the model's dtype: what enters the first
                        // layer, then what leaves the last one
  std::span<const DecodeLayer> layers;
  TensorView final_norm;  // [hidden_size] float32
  float norm_eps = 0;
  float delta_factor = 1;  // m
  ActivationKind activation = ActivationKind::kSilu;
  int num_heads = 0;
  float attention_scale = 0;
  Rope rope;
  PagedBatch batch;  // of decode rows alone
  KvCacheView kv;
  // Of the model's dtype, overwritten: [num_tokens, num_heads * head_dim] twice,
  // [num_tokens, intermediate_size].
  TensorView q, attention, inner;
  TensorView y;  // [num_tokens, hidden_size] of the model's dtype: RmsNorm of the last residual
};

}  // namespace inflight::ops

// SPDX-License-Identifier: Apache-2.0
// What a Decoder computes in (model/decoder.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/config.h"
#include "model/expert_mlp.h"
#include "tensor/tensor_view.h"

namespace inflight::model {

// What one step computes in, reused by every layer. Views of the largest step; Rows() cuts them.
// "stream dtype" is float32 on the CPU and the model's on CUDA; "activation dtype" what the next
// linear reads.
struct DecoderWorkspace {
  TensorView residual;   // [max_num_tokens, hidden_size] stream dtype
  TensorView delta;      // [max_num_tokens, hidden_size] stream dtype
  TensorView x;          // [max_num_tokens, hidden_size] activation dtype
  TensorView qkv;        // [max_num_tokens, (num_heads + 2 num_kv_heads) * head_dim] stream dtype
  TensorView q;          // [max_num_tokens, num_heads, head_dim] stream dtype; on CUDA in qkv
  TensorView attention;  // [max_num_tokens, num_heads * head_dim] activation dtype; the model's
                         // where activations are FP8
  TensorView inner;      // [max_num_tokens, intermediate_size] activation dtype; of dense layers
  ExpertWorkspace experts;
  TensorView gate_up;  // CUDA: [max_num_tokens, 2 * intermediate_size] the model's dtype; of models
                       // that are not gated half as wide, beside adapters
  TensorView logits;   // [max_logits, vocab_size] float32
  TensorView rank_logits;      // [max_logits, VocabRows] float32; where ranks share the head
  TensorView scratch;          // [LinearScratchBytes] uint8; empty for float weights
  TensorView cos_sin;          // [max_seq_len, 2, RotaryDim / 2] float32; rotary models only
  TensorView sliding_cos_sin;  // likewise, of layers with a window where they have their own rope
  // FP8 activations only: a norm's output in the model's dtype, that lm_head and routers read;
  // inner before it is rounded, of models that are not gated; the rounded attention; the scales of
  // x, attention and inner, [max_num_tokens] float32.
  TensorView final_x;
  TensorView wide_inner;
  TensorView attention_codes;
  TensorView x_scales, attention_scales, inner_scales;
};

// Places the workspace from `base` on and returns its size; a null base only measures. The ranks of
// a stage have one layout, by which they find each other's tensors.
uint64_t LayOut(const ModelConfig& config, DeviceKind device, int max_seq_len, int max_num_tokens,
                int max_logits, std::byte* base, DecoderWorkspace& out);

// The first `n` rows of `view`.
TensorView Rows(TensorView view, int64_t n);

}  // namespace inflight::model

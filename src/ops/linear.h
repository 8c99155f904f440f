// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/activation.h"
#include "ops/lora.h"
#include "ops/weight.h"
#include "tensor/stream.h"

namespace inflight::ops {

// Functions of one value x:
//
//   kRelu      max(x, 0)
//   kGelu      x (1 + erf(x / sqrt(2))) / 2                         arXiv:1606.08415
//   kGeluTanh  x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2    its approximation there
//   kSilu      x / (1 + e^-x)                                       arXiv:1710.05941
//
// transformers (huggingface/transformers/src/transformers/activations.py) calls kGelu "gelu", and
// kGeluTanh "gelu_new", "gelu_fast" and "gelu_pytorch_tanh"; TensorRT-LLM
// (NVIDIA/TensorRT-LLM/tensorrt_llm/functional.py) computes kGeluTanh for every "gelu" of its
// checkpoints.
enum class ActivationKind : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu };

// int8 and int4 weights (weight-only W8A16 and W4A16 of a checkpoint), and float4 weights, by the
// integers that are twice their elements (ops/weight.h), are computed on the CPU with
// int8 activations, a scale per token, whatever the number of tokens (the
// formula of upstream's SmoothQuant, arXiv:2211.10438):
//
//   r[t]    = 127 / max_k |x[t, k]|            s_x[t] = max_k |x[t, k]| / 127
//   q[t, k] = x[t, k] * r[t], rounded to the nearest integer, ties to even
//   y[t, n] = (float32(sum_k q[t, k] w[n, k]) * s_w[n]) * s_x[t] + bias[n], the sum exact in int32
//
// A row of zeros, and one so small that r overflows, gives zeros; one that holds infinity or NaN
// gives NaN.
//
// With groups (Weight::group_size) activations have a scale per token and group, and sums of groups
// are added up in float32, in order:
//
//   r[t, g] = 127 / max_k |x[t, k]|            s_x[t, g] = max_k |x[t, k]| / 127      k of group g
//   a[t, n] = fma(float32(sum_k q[t, k] w[n, k]), s_x[t, g] * s_w[n, g], a[t, n])     g = 0, 1, ...
//   a[t, n] = fma(float32(sum_k q[t, k]) * s_x[t, g], offset[n, g], a[t, n])
//   y[t, n] = a[t, n] + bias[n]
//
// A group of zeros, and one so small that r overflows, adds nothing; one that holds infinity or NaN
// makes the row NaN. With an order (Weight::order) x[t, k] here is x[t, order[k]], 0 of kNoColumn.
//
// FP8 weights in groups (f8e4m3, Weight::group_size of 128) read bfloat16 activations on the CPU.
// Products are of the codes, which are bfloat16 exactly, with sums in float32:
//
//   a[t, n] = fma(sum_k x[t, k] w[n, k], s_w[n, g], a[t, n])            k of group g = 0, 1, ...
//   y[t, n] = a[t, n] + bias[n]
//
// On CUDA activations are not rounded. Of few tokens, at most 256 on sm_90a and 32 elsewhere,
// products are of the codes themselves, where the shape allows it (ops/cuda/skinny_integers.h,
// ops/cuda/streamed_integers.h), with sums in float32:
//
//   y[t, n] = (sum_k x[t, k] w[n, k]) * s_w[n] + bias[n]
//
// and with groups, a part being the elements of a group among 64 bytes of the row of w:
//
//   a[t, n] = fma(sum_k x[t, k] w[n, k], s_w[n, g], a[t, n])            k of one part, in group g
//   a[t, n] = fma(sum_k x[t, k], offset[n, g], a[t, n])
//   y[t, n] = a[t, n] + bias[n]
//
// Of more tokens, and in the other shapes, weights are rounded to the activations' dtype first:
// fma(w[n, k], s_w[n, g], offset[n, g]) in float32.
//
// FP8 weights (a scale per row) read FP8 activations (a scale per token), with sums in float32:
//
//   y[t, n] = (sum_k x[t, k] w[n, k]) * s_x[t] * s_w[n] + bias[n]

// Bytes from row to row of int8 activations: zeros follow up to a multiple of 64, and the number of
// these is odd, so that rows do not fall on the same sets of a cache.
int64_t RoundedRowBytes(int64_t in_features);

// Bytes of scratch that a linear needs for the rounded activations; 0 for float weights.
// `group_size` is the weight's.
size_t LinearScratchBytes(DType weight_dtype, int64_t num_tokens, int64_t in_features,
                          int64_t group_size = 0);

// The widest row of int8 activations whose sum cannot leave int32: 127 * 128 * 2^17 < 2^31.
inline constexpr int64_t kMaxInt8Features = int64_t{1} << 17;

// FP8 sums of products of codes reach 448^2 in_features, which float16 does not hold: between the
// product and its reader they are times this power of two, with which they stay within 65504. What
// that rounds away is below 2^-25 of the largest sum. 1 for other dtypes of the sums.
float Fp8ProductScale(DType sum_dtype, int64_t in_features);

// y = act(x W^T + bias)
//
// Sums are float32, over k in one order for every num_tokens: a row's result does not depend on the
// batch.
struct LinearParams {
  Activation x;     // [num_tokens, in_features] dtype as the weight (bf16 weights, and FP8 in
                    // groups, read bf16 activations; f32 and f16 read f32; integer weights read
                    // either)
  Weight weight;    // [out_features, in_features]
  TensorView bias;  // [out_features] float32; empty = none
  ActivationKind activation = ActivationKind::kNone;
  TensorView y;  // [num_tokens, out_features] float32 | bfloat16 (rounded to nearest even); on
                 // CUDA of the model's dtype, or float32
  TensorView scratch;  // [>= LinearScratchBytes] uint8, 64-byte aligned; integer weights only
  LoraTerm lora;       // of `site`: added to the sums
  LoraSite site = LoraSite::kDense;
  TensorView workspace;  // CUDA, of adapters beside an activation: [num_tokens, out_features] of
                         // x's dtype
  // CUDA, FP8 operands, no bias, no activation: y holds the sums of products of the codes times
  // Fp8ProductScale, and its reader applies x.scales and weight.scales (PendingScales).
  bool defer_scales = false;
};

// y = act(x G^T + gate_bias) * (x U^T + up_bias), the gated feed-forward (SwiGLU with SiLU:
// arXiv:2002.05202)
struct GatedLinearParams {
  Activation x;  // [num_tokens, in_features]
  Weight gate;   // [out_features, in_features]: the branch that goes through `activation` (Hugging
                 // Face's gate_proj)
  Weight up;     // [out_features, in_features]: the linear branch (up_proj)
  TensorView gate_bias;  // [out_features] float32; empty = none
  TensorView up_bias;    // [out_features] float32; empty = none
  ActivationKind activation = ActivationKind::kSilu;
  TensorView y;  // [num_tokens, out_features] f32 | bf16, the dtype that the next linear reads; on
                 // CUDA also f8e4m3, as of QuantizeParams applied to the product in float32
  TensorView y_scales;   // [num_tokens] float32; of y in f8e4m3
  LoraTerm lora;         // of kFc to the gate's sums, of kGate to the other's
  TensorView scratch;    // as of Linear
  TensorView workspace;  // CUDA only: [num_tokens, 2 * out_features] of the model's dtype
};

// Logits of chosen rows:  logits[r] = Cap(scale * (x[rows[r]] W^T + bias)), Cap as of
// AttentionParams
struct LmHeadParams {
  Activation x;  // [num_tokens, hidden_size], after the final norm; of FP8 weights in the model's
                 // dtype, rounded here to a scale per row
  TensorView rows;  // [num_rows] int32, each in [0, num_tokens): the tokens whose logits are wanted
  Weight weight;    // [vocab_size, hidden_size]
  TensorView bias;  // [vocab_size] float32; empty = none
  TensorView logits;   // [num_rows, vocab_size] float32
  TensorView scratch;  // as of Linear, for num_rows tokens
  float scale = 1;
  float softcap = 0;  // 0 = none
};

}  // namespace inflight::ops

// SPDX-License-Identifier: Apache-2.0
// The operators of models in float32, for who compares with others' float32: small kernels, one for
// every shape, which add up in float32 without TF32.
//
// A token's results have the same bits whatever else the step holds, on every stream. Weights,
// activations and the KV cache are float32; a row of the cache is head_dim elements
// (ops/kv_cache_view.h). Which experts a token has, cuda/route.cu says here, too.
#pragma once

#include "ops/backend.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda::float32 {

// Named "cuda".
OpTable Table();

Status Embed(const EmbedParams& params, Stream& stream);
Status AddNorm(const AddNormParams& params, Stream& stream);
Status QkvRopeKv(const QkvRopeKvParams& params, Stream& stream);
Status Attention(const AttentionParams& params, Stream& stream);
Status Linear(const LinearParams& params, Stream& stream);
Status GatedLinear(const GatedLinearParams& params, Stream& stream);
Status LmHead(const LmHeadParams& params, Stream& stream);
Status ExpertGatedLinear(const ExpertGatedLinearParams& params, Stream& stream);
Status ExpertLinear(const ExpertLinearParams& params, Stream& stream);

// y[m, n] = Cap(factor * act(x[rows[m]] w[n] + bias[n])) * times[m, n]      Cap: ops/attention.h
struct Product {
  const float* x = nullptr;       // [any, k]
  const int32_t* rows = nullptr;  // [m]; null: row m is x's
  const float* w = nullptr;       // [n, k]
  const float* bias = nullptr;    // [n] or null
  const float* times = nullptr;   // [m, n] or null; may be y
  float* y = nullptr;             // [m, n]
  int64_t m = 0, n = 0, k = 0;
  int64_t y_stride = 0;  // elements from one row of y, and of `times`, to the next; 0 = n
  ActivationKind activation = ActivationKind::kNone;
  float factor = 1;
  float softcap = 0;  // 0 = none
};
Status Project(const Product& product, CudaStream& stream);

// Checks of what the operators with a product share: a float32 weight in rows; x [num_tokens,
// in_features] of it without a norm that is due.
Status ExpectWeight(const char* field, const Weight& weight);
Status ExpectInput(const Activation& x, const Weight& weight);

// What adapters add to the products of a linear. Without adapters nothing.
class Adapters {
 public:
  // `y`: what the product was put into, of `num_sites` linears side by side.
  Adapters(const LoraTerm& lora, LoraSite first_site, int num_sites, const TensorView& x,
           const TensorView& y);
  // Of tokens with adapters this y is act(product + what they add + bias).
  void ActivateInto(const TensorView& y, const float* bias, ActivationKind activation);
  Status Add(CudaStream& stream) const;  // behind the product

 private:
  bool has_any_;
  LoraAddParams params_;
};

}  // namespace inflight::ops::cuda::float32

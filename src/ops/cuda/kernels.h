// SPDX-License-Identifier: Apache-2.0
// The operators of the CUDA tables, and the parts that several of them share. One .cu file each.
//
// All of them only enqueue on the stream: no allocation, no synchronisation, no reading of device
// memory by the host, so that a step can be captured into a graph. What is checked is what the host
// can see: dtypes, shapes, alignment.
#pragma once

#include "ops/backend.h"
#include "ops/cuda/cuda_stream.h"

namespace inflight::ops::cuda {

Status Embed(const EmbedParams& params, Stream& stream);
Status AddNorm(const AddNormParams& params, Stream& stream);
Status Quantize(const QuantizeParams& params, Stream& stream);
Status PlanAttention(const AttentionPlanParams& params, Stream& stream);
Status Attention(const AttentionParams& params, Stream& stream);
Status QkvRopeKv(const QkvRopeKvParams& params, Stream& stream);
Status Linear(const LinearParams& params, Stream& stream);
Status GatedLinear(const GatedLinearParams& params, Stream& stream);
Status LmHead(const LmHeadParams& params, Stream& stream);
Status Route(const RouteParams& params, Stream& stream);
Status ExpertGatedLinear(const ExpertGatedLinearParams& params, Stream& stream);
Status ExpertLinear(const ExpertLinearParams& params, Stream& stream);

// One matrix product:  y[m, n] = sum_k x[m, k] w[n, k]  (+ bias[n]) (then the activation).
// Operands both f16, both bf16 or both f8e4m3; sums in float32, times `scale`, rounded once. Of
// f8e4m3 operands the scales of rows are not applied here. Rows of x and w are dense and 16-byte
// aligned, K is a multiple of 16 bytes.
struct GemmParams {
  const void* x = nullptr;  // [m, k]
  const void* w = nullptr;  // [n, k]
  void* y = nullptr;        // [m, n]
  DType dtype = DType::kBF16;
  DType y_dtype = DType::kBF16;  // f16 | bf16 | f32
  int64_t m = 0, n = 0, k = 0;
  int64_t y_stride = 0;         // elements from one row of y to the next; 0 = n
  float scale = 1;              // of the sums
  const float* bias = nullptr;  // [n]
  ActivationKind activation = ActivationKind::kNone;
};

// By the best kernel for the shape: streaming ones for few rows (skinny.h, streamed.h), cuBLASLt
// above.
Status Gemm(const GemmParams& params, CudaStream& stream);

// A streaming kernel for few rows (skinny.h); false: none for this dtype or shape.
bool SkinnyMmaCanRun(const GemmParams& params);  // m <= 16; every GPU
Status SkinnyMma(const GemmParams& params, CudaStream& stream);
// Every m. FP8 needs n to be a multiple of 8.
Status GemmCublasLt(const GemmParams& params, CudaStream& stream);

// After the projection of QkvRopeKv: `params.workspace` holds the projected rows (bias not added
// yet), to which `pending` still applies. Adds the bias, rotates q in place (or into params.q where
// that is elsewhere) and k, and writes k and v to the cache.
Status RopeKv(const QkvRopeKvParams& params, const PendingScales& pending, CudaStream& stream);

// y[t, i] = act(g[t, i] + gate_bias[i]) * (u[t, i] + up_bias[i]),  g = gate_up[t, 0..n), u the rest
// of the row, `pending` applied first (its feature factors: gate's, then up's).
struct GateParams {
  const void* gate_up = nullptr;  // [num_tokens, 2n] `dtype`
  DType dtype = DType::kBF16;
  int64_t num_tokens = 0, n = 0;
  const float* token_scales = nullptr;  // [num_tokens]; null = nothing pending
  float token_factor = 1;               // of each of them
  const float* gate_scales = nullptr;   // [n]
  const float* up_scales = nullptr;     // [n]
  const float* gate_bias = nullptr;     // [n] or null
  const float* up_bias = nullptr;
  ActivationKind activation = ActivationKind::kSilu;
  TensorView y;         // [num_tokens, n] dtype | f8e4m3
  TensorView y_scales;  // [num_tokens] float32; of y in f8e4m3
};
Status Gate(const GateParams& params, CudaStream& stream);

// In place on y [m, n]: what a product's epilogue could not do.
//   y = Cap(factor * act(y * token[m] * token_factor * feature[n] + bias[n]))   Cap: attention.h
struct EpilogueParams {
  void* y = nullptr;
  DType dtype = DType::kBF16;  // f16 | bf16 | f32
  int64_t m = 0, n = 0;
  const float* token_scales = nullptr;  // [m] or null
  float token_factor = 1;
  const float* feature_scales = nullptr;  // [n] or null
  const float* bias = nullptr;            // [n] or null
  ActivationKind activation = ActivationKind::kNone;
  float factor = 1;
  float softcap = 0;  // 0 = none
};
Status Epilogue(const EpilogueParams& params, CudaStream& stream);

// y[t, c] = act(z[t, c] + a[t, c] + bias[c]) of tokens whose adapter has factors for column c; the
// others stay as they are. a[t, s * out_features + n] is what the adapter of token t adds to output
// n of site first_site + s (lora.h). z and y may be one. Widths are multiples of 8.
struct LoraAddParams {
  LoraDevice lora;
  int layer = 0;
  LoraSite first_site = LoraSite::kQkv;
  int num_sites = 1;           // at most 2
  DType dtype = DType::kBF16;  // of x, z, y and the factors
  const void* x = nullptr;     // [num_tokens, in_features]
  int64_t in_features = 0;
  const void* z = nullptr;  // [num_tokens, y_stride]
  void* y = nullptr;        // [num_tokens, y_stride]
  int64_t y_stride = 0;
  int64_t out_features = 0;     // of one site
  const float* bias = nullptr;  // [num_sites * out_features] or null
  ActivationKind activation = ActivationKind::kNone;
  int num_tokens = 0;
};
Status LoraShrink(const LoraAddParams& params, CudaStream& stream);  // reads x
Status LoraExpand(const LoraAddParams& params, CudaStream& stream);  // behind it: the rest

// out[r] = x[rows[r]]; rows of `row_bytes`, a multiple of 16.
Status GatherRows(const void* x, const int32_t* rows, int64_t num_rows, int64_t row_bytes,
                  void* out, CudaStream& stream);

// out[n, k] = what element k of row n of int8, int4, float4 or grouped FP8 weights stands for
// (ops/weight.h), by one fma in float32, rounded to `dtype`.
Status Dequantize(const Weight& weight, DType dtype, void* out, CudaStream& stream);

// Bytes of the parts of StreamWorkspace that belong to attention.
size_t AttentionPlanBytes(int max_num_rows, int max_num_tokens);
size_t AttentionPartialBytes(const ShapeClass& shape, int num_sms, int max_num_rows);
size_t AttentionCounterBytes(const ShapeClass& shape, int max_num_rows);

}  // namespace inflight::ops::cuda

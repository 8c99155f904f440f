// SPDX-License-Identifier: Apache-2.0
// The gated activation of a feed-forward layer. Into the model's dtype: element-wise, 3 * n * 2
// bytes per token. Into e4m3: one CTA per row, its products in registers until their largest is
// known, 2.5 * n * 2 bytes.
#include <algorithm>

#include "ops/cuda/activate.cuh"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/row.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 256;  // of the element-wise kernels
constexpr int64_t kMaxChunks = 65535;

struct GateArgs {
  const void* gate_up;        // [num_tokens, 2n]
  const float* token_scales;  // [num_tokens]; null = gate_up is not raw
  const float* gate_scales;   // [n]
  const float* up_scales;     // [n]
  const float* gate_bias;     // [n] or null
  const float* up_bias;       // [n] or null
  ActivationKind activation;
  void* y;          // [num_tokens, n]
  float* y_scales;  // [num_tokens]; of y in e4m3
  int64_t n;
};

// x = x * token_scale * scales + bias for the eight features from i on.
__device__ void Scale(const float* token_scale, const float* scales, const float* bias, int64_t i,
                      float (&x)[kVector]) {
  if (token_scale != nullptr) {
    float factors[kVector];
    Load(scales + i, factors);
#pragma unroll
    for (int k = 0; k < kVector; ++k) x[k] = x[k] * *token_scale * factors[k];
  }
  if (bias == nullptr) return;
  float added[kVector];
  Load(bias + i, added);
#pragma unroll
  for (int k = 0; k < kVector; ++k) x[k] += added[k];
}

// The products of features [i, i + 8) of a token from its gate and up values.
template <typename T>
__device__ void Gated(const GateArgs& args, int64_t t, int64_t i, const uint4& gate_words,
                      const uint4& up_words, float (&gate)[kVector]) {
  float up[kVector];
  Unpack<T>(gate_words, gate);
  Unpack<T>(up_words, up);
  const float* token_scale = args.token_scales == nullptr ? nullptr : args.token_scales + t;
  Scale(token_scale, args.gate_scales, args.gate_bias, i, gate);
  Scale(token_scale, args.up_scales, args.up_bias, i, up);
  Activate(args.activation, gate);
#pragma unroll
  for (int k = 0; k < kVector; ++k) gate[k] *= up[k];
}

// One product, at any address.
template <typename T>
__device__ float GatedElement(const GateArgs& args, int64_t t, int64_t i) {
  const T* row = static_cast<const T*>(args.gate_up) + t * 2 * args.n;
  float gate = ToFloat(row[i]);
  float up = ToFloat(row[args.n + i]);
  if (args.token_scales != nullptr) {
    gate = gate * args.token_scales[t] * args.gate_scales[i];
    up = up * args.token_scales[t] * args.up_scales[i];
  }
  if (args.gate_bias != nullptr) gate += args.gate_bias[i];
  if (args.up_bias != nullptr) up += args.up_bias[i];
  return Activate(args.activation, gate) * up;
}

// CTA (t, c): the vectors [c * kThreads, (c + 1) * kThreads) of token t, and those gridDim.y chunks
// on.
template <typename T>
__global__ void __launch_bounds__(kThreads) GateKernel(const GateArgs args) {
  const int64_t t = blockIdx.x;
  const T* row = static_cast<const T*>(args.gate_up) + t * 2 * args.n;
  T* y = static_cast<T*>(args.y) + t * args.n;
  for (int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector; i < args.n;
       i += int64_t{gridDim.y} * kThreads * kVector) {
    const uint4 gate_words = LoadOnce(row + i);
    const uint4 up_words = LoadOnce(row + args.n + i);
    float product[kVector];
    Gated<T>(args, t, i, gate_words, up_words, product);
    Store(y + i, product);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) GateAnyKernel(const GateArgs args) {
  const int64_t t = blockIdx.x;
  T* y = static_cast<T*>(args.y) + t * args.n;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < args.n;
       i += int64_t{gridDim.y} * kThreads)
    y[i] = FromFloat<T>(GatedElement<T>(args, t, i));
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kMaxRowThreads) GateFp8Kernel(const GateArgs args) {
  const int64_t t = blockIdx.x;
  const T* row = static_cast<const T*>(args.gate_up) + t * 2 * args.n;
  uint4 gate_words[kVectors];
  uint4 up_words[kVectors];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    if (RowIndex(j) >= args.n) continue;
    gate_words[j] = LoadOnce(row + RowIndex(j));
    up_words[j] = LoadOnce(row + args.n + RowIndex(j));
  }
  float product[kVectors][kVector] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j)
    if (RowIndex(j) < args.n)
      Gated<T>(args, t, RowIndex(j), gate_words[j], up_words[j], product[j]);
  BlockReducer reducer;
  StoreFp8Row(product, args.n, static_cast<Fp8*>(args.y) + t * args.n, args.y_scales + t, reducer);
}

// Rows of any width at any address; each product is computed twice.
template <typename T>
__global__ void __launch_bounds__(kMaxRowThreads) GateFp8AnyKernel(const GateArgs args) {
  const int64_t t = blockIdx.x;
  Fp8* y = static_cast<Fp8*>(args.y) + t * args.n;
  float largest = 0;
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x)
    largest = fmaxf(largest, fabsf(GatedElement<T>(args, t, i)));
  BlockReducer reducer;
  const float scale = Fp8Scale(reducer.Max(largest));
  const float inverse = 1.0F / scale;
  if (threadIdx.x == 0) args.y_scales[t] = scale;
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x)
    y[i] = FromFloat<Fp8>(GatedElement<T>(args, t, i) * inverse);
}

bool HasVectors(const GateArgs& args, size_t y_bytes) {
  return args.n % kVector == 0 && IsAligned(args.gate_up) && IsAligned(args.y, y_bytes) &&
         IsAligned(args.gate_scales) && IsAligned(args.up_scales) && IsAligned(args.gate_bias) &&
         IsAligned(args.up_bias);
}

template <typename T>
void LaunchElements(const GateArgs& args, int64_t num_tokens, cudaStream_t stream) {
  const bool is_aligned = HasVectors(args, 16);
  const int64_t per_cta = int64_t{kThreads} * (is_aligned ? kVector : 1);
  const int64_t chunks = std::min((args.n + per_cta - 1) / per_cta, kMaxChunks);
  const dim3 grid(static_cast<unsigned>(num_tokens), static_cast<unsigned>(chunks));
  if (is_aligned)
    GateKernel<T><<<grid, kThreads, 0, stream>>>(args);
  else
    GateAnyKernel<T><<<grid, kThreads, 0, stream>>>(args);
}

template <typename T>
void LaunchFp8Rows(const GateArgs& args, int64_t num_tokens, cudaStream_t stream) {
  constexpr int64_t kOneVector = 512 * kVector;  // elements that 512 threads hold in a vector each
  const auto grid = static_cast<unsigned>(num_tokens);
  const int64_t n = args.n;
  const bool is_aligned = HasVectors(args, kVector);
  if (is_aligned && n <= kOneVector)
    GateFp8Kernel<T, 1><<<grid, RowThreads(n, kVector, 1), 0, stream>>>(args);
  else if (is_aligned && n <= 2 * kOneVector)
    GateFp8Kernel<T, 2><<<grid, RowThreads(n, kVector, 2), 0, stream>>>(args);
  else if (is_aligned && n <= 8 * kOneVector)
    GateFp8Kernel<T, 4><<<grid, RowThreads(n, kVector, 4), 0, stream>>>(args);
  else
    GateFp8AnyKernel<T><<<grid, RowThreads(n, 1, 1), 0, stream>>>(args);
}

Status Check(const GateParams& p) {
  RETURN_IF_ERROR(ExpectHalf("gate_up", p.dtype));
  if (p.gate_up == nullptr && p.num_tokens > 0)
    return InvalidArgument("gate_up: got no tensor, needed [num_tokens, 2n]");
  if (p.token_scales != nullptr && (p.gate_scales == nullptr || p.up_scales == nullptr))
    return InvalidArgument("gate_scales, up_scales: got none beside token_scales");
  RETURN_IF_ERROR(Expect("y", p.y, {p.dtype, DType::kF8E4M3}, {p.num_tokens, p.n}));
  if (p.y.dtype != DType::kF8E4M3) return Status::Ok();
  return Expect("y_scales", p.y_scales, {DType::kF32}, {p.num_tokens});
}

}  // namespace

Status Gate(const GateParams& p, CudaStream& stream) {
  RETURN_IF_ERROR(Check(p));
  if (p.num_tokens == 0 || p.n == 0) return Status::Ok();
  const GateArgs args = {.gate_up = p.gate_up,
                         .token_scales = p.token_scales,
                         .gate_scales = p.gate_scales,
                         .up_scales = p.up_scales,
                         .gate_bias = p.gate_bias,
                         .up_bias = p.up_bias,
                         .activation = p.activation,
                         .y = p.y.data,
                         .y_scales = p.y_scales.as<float>(),
                         .n = p.n};
  WithHalf(p.dtype, [&]<typename T>(std::type_identity<T>) {
    if (p.y.dtype == DType::kF8E4M3)
      LaunchFp8Rows<T>(args, p.num_tokens, stream.handle());
    else
      LaunchElements<T>(args, p.num_tokens, stream.handle());
  });
  return inflight::cuda::LaunchStatus("gate");
}

}  // namespace inflight::ops::cuda

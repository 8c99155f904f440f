// SPDX-License-Identifier: Apache-2.0
// The gated activation of a feed-forward layer. Into the model's dtype: element-wise, 3 * n * 2
// bytes per token. Into e4m3: 2.5 * n * 2 bytes, and products stay in registers until the largest
// of their row is known. One CTA has a row; of few rows, which would be the matter of few SMs, a
// cluster of CTAs has each, where the GPU knows clusters. Both give the same bits: a maximum knows
// no order.
#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/activate.cuh"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/row.cuh"
#include "tensor/cuda_cluster.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 256;  // of the element-wise kernels
constexpr int64_t kMaxChunks = 65535;
constexpr int kClusterSize = 8;
constexpr int kMaxClusterThreads = 512;  // of a CTA
constexpr int kClusterRegisters = 48;  // of a thread: 64 clusters of 8 x 224 threads run at a time

struct GateArgs {
  const void* gate_up;        // [num_tokens, 2n]
  const float* token_scales;  // [num_tokens]; null = gate_up is not raw
  float token_factor;         // of each of them
  const float* gate_scales;   // [n]
  const float* up_scales;     // [n]
  const float* gate_bias;     // [n] or null
  const float* up_bias;       // [n] or null
  ActivationKind activation;
  void* y;          // [num_tokens, n]
  float* y_scales;  // [num_tokens]; of y in e4m3
  int64_t n;
};

// Null where nothing is pending.
__device__ const float* TokenScale(const GateArgs& args, int64_t t) {
  return args.token_scales == nullptr ? nullptr : args.token_scales + t;
}

__device__ void Multiply(float token_scale, const float (&factors)[kVector], float (&x)[kVector]) {
#pragma unroll
  for (int k = 0; k < kVector; ++k) x[k] = x[k] * token_scale * factors[k];
}

// The scales that are pending on features [i, i + 8) of a token's gate and up: loaded when they are
// needed,
struct LazyScales {
  const GateArgs& args;
  const float* token;
  const int64_t i;

  __device__ void ApplyToGate(float (&x)[kVector]) const { Apply(args.gate_scales + i, x); }
  __device__ void ApplyToUp(float (&x)[kVector]) const { Apply(args.up_scales + i, x); }

 private:
  __device__ void Apply(const float* scales, float (&x)[kVector]) const {
    if (token == nullptr) return;
    float factors[kVector];
    Load(scales, factors);
    Multiply(*token * args.token_factor, factors, x);
  }
};

// or before: those of features while the kernel before ends, the token's with the other loads that
// are under way when a thread waits for the first.
struct EagerScales {
  const bool is_raw;
  float token;
  float gates[kVector];
  float ups[kVector];

  __device__ EagerScales(const GateArgs& args, int64_t i) : is_raw(args.token_scales != nullptr) {
    if (!is_raw || i >= args.n) return;
    Load(args.gate_scales + i, gates);
    Load(args.up_scales + i, ups);
  }
  __device__ void LoadToken(const GateArgs& args, int64_t t) {
    if (is_raw) token = args.token_scales[t] * args.token_factor;
  }
  __device__ void ApplyToGate(float (&x)[kVector]) const {
    if (is_raw) Multiply(token, gates, x);
  }
  __device__ void ApplyToUp(float (&x)[kVector]) const {
    if (is_raw) Multiply(token, ups, x);
  }
};

__device__ void AddBias(const float* bias, int64_t i, float (&x)[kVector]) {
  if (bias == nullptr) return;
  float added[kVector];
  Load(bias + i, added);
#pragma unroll
  for (int k = 0; k < kVector; ++k) x[k] += added[k];
}

// The products of features [i, i + 8) from a token's gate and up values.
template <typename T, typename Scales>
__device__ void Gated(const GateArgs& args, int64_t i, const Scales& scales,
                      const uint4& gate_words, const uint4& up_words, float (&gate)[kVector]) {
  float up[kVector];
  Unpack<T>(gate_words, gate);
  Unpack<T>(up_words, up);
  scales.ApplyToGate(gate);
  AddBias(args.gate_bias, i, gate);
  scales.ApplyToUp(up);
  AddBias(args.up_bias, i, up);
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
    const float token = args.token_scales[t] * args.token_factor;
    gate = gate * token * args.gate_scales[i];
    up = up * token * args.up_scales[i];
  }
  if (args.gate_bias != nullptr) gate += args.gate_bias[i];
  if (args.up_bias != nullptr) up += args.up_bias[i];
  return Activate(args.activation, gate) * up;
}

// CTA (t, c): the vectors [c * kThreads, (c + 1) * kThreads) of token t, and those gridDim.y chunks
// on.
template <typename T>
__global__ void __launch_bounds__(kThreads) GateKernel(const GateArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const T* row = static_cast<const T*>(args.gate_up) + t * 2 * args.n;
  T* y = static_cast<T*>(args.y) + t * args.n;
  const float* token_scale = TokenScale(args, t);
  for (int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector; i < args.n;
       i += int64_t{gridDim.y} * kThreads * kVector) {
    const uint4 gate_words = LoadOnce(row + i);
    const uint4 up_words = LoadOnce(row + args.n + i);
    float product[kVector];
    Gated<T>(args, i, LazyScales{args, token_scale, i}, gate_words, up_words, product);
    Store(y + i, product);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) GateAnyKernel(const GateArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  T* y = static_cast<T*>(args.y) + t * args.n;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < args.n;
       i += int64_t{gridDim.y} * kThreads)
    y[i] = FromFloat<T>(GatedElement<T>(args, t, i));
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kMaxRowThreads) GateFp8Kernel(const GateArgs args) {
  BeginOverlapped();
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
  const float* token_scale = TokenScale(args, t);
  float product[kVectors][kVector] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int64_t i = RowIndex(j);
    if (i < args.n)
      Gated<T>(args, i, LazyScales{args, token_scale, i}, gate_words[j], up_words[j], product[j]);
  }
  BlockReducer reducer;
  const float largest = reducer.Max(LargestMagnitude(product, args.n));
  StoreFp8Row(product, args.n, largest, static_cast<Fp8*>(args.y) + t * args.n, args.y_scales + t);
}

// The CTAs of a cluster cut the features [0, n) of one row among them, a vector for each thread.
// Each warp tells its largest product to all CTAs, and one barrier later each CTA has all of them.
template <typename T>
__global__ void __maxnreg__(kClusterRegisters) GateFp8ClusterKernel(const GateArgs args) {
  LetKernelBehindStart();
  using inflight::cuda::ClusterRank;
  constexpr int kMaxWarps = kClusterSize * kMaxClusterThreads / kWarp;  // of the cluster
  __shared__ float largest_of_warps[kMaxWarps];
  inflight::cuda::ClusterArrive();  // this CTA has begun

  const int64_t t = int64_t{blockIdx.x} / kClusterSize;
  const int64_t i = (int64_t{ClusterRank()} * blockDim.x + threadIdx.x) * kVector;
  const bool has_vector = i < args.n;
  EagerScales scales(args, i);
  WaitForKernelBefore();
  float product[kVector] = {};
  if (has_vector) {
    const T* row = static_cast<const T*>(args.gate_up) + t * 2 * args.n;
    scales.LoadToken(args, t);
    const uint4 gate_words = LoadOnce(row + i);
    const uint4 up_words = LoadOnce(row + args.n + i);
    Gated<T>(args, i, scales, gate_words, up_words, product);
  }
  float largest = 0;
#pragma unroll
  for (int k = 0; k < kVector; ++k) largest = fmaxf(largest, fabsf(product[k]));
  largest = WarpMax(largest);

  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warps = static_cast<int>(blockDim.x / kWarp);
  const int warp = ClusterRank() * warps + static_cast<int>(threadIdx.x / kWarp);
  inflight::cuda::ClusterWait();  // all CTAs have begun
  if (lane < kClusterSize) *inflight::cuda::Peer(&largest_of_warps[warp], lane) = largest;
  inflight::cuda::ClusterSync();
  for (int w = lane; w < kClusterSize * warps; w += kWarp)
    largest = fmaxf(largest, largest_of_warps[w]);
  const float scale = Fp8Scale(WarpMax(largest));
  const float inverse = 1.0F / scale;
  if (i == 0) args.y_scales[t] = scale;
  if (!has_vector) return;
#pragma unroll
  for (int k = 0; k < kVector; ++k) product[k] *= inverse;
  Store(static_cast<Fp8*>(args.y) + t * args.n + i, product);
}

// Rows of any width at any address; each product is computed twice.
template <typename T>
__global__ void __launch_bounds__(kMaxRowThreads) GateFp8AnyKernel(const GateArgs args) {
  BeginOverlapped();
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
    LaunchOverlapped(GateKernel<T>, grid, kThreads, 0, stream, args);
  else
    LaunchOverlapped(GateAnyKernel<T>, grid, kThreads, 0, stream, args);
}

// Whether clusters have the rows: they are so wide that one CTA would be slow, and so few that all
// clusters run at a time; the GPU has clusters, and its code is such that knows them. Not of a
// fixed stream: the compiler may join a product and a sum in one kernel and not in the other.
template <typename T>
bool TakesClusters(int64_t num_tokens, int64_t n, const CudaStream& stream) {
  static const bool code_knows_them = [] {
    cudaFuncAttributes attributes = {};
    return cudaFuncGetAttributes(&attributes, GateFp8ClusterKernel<T>) == cudaSuccess &&
           attributes.ptxVersion >= 90;
  }();
  constexpr int64_t kMinWidth = 2048;
  constexpr int64_t kMaxWidth = int64_t{kClusterSize} * kMaxClusterThreads * kVector;
  const int64_t threads = num_tokens * n / kVector;
  return !stream.is_fixed() && n > kMinWidth && n <= kMaxWidth &&
         threads <= int64_t{stream.num_sms()} * 1024 && stream.gpu().compute_major >= 9 &&
         code_knows_them;
}

template <typename T>
void LaunchClusters(const GateArgs& args, int64_t num_tokens, cudaStream_t stream) {
  LaunchAttributes attributes(CanOverlap(), kClusterSize);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_tokens) * kClusterSize);
  config.blockDim = dim3(RowThreads(args.n, kVector, kClusterSize));
  config.stream = stream;
  config.attrs = attributes.list;
  config.numAttrs = attributes.count;
  cudaLaunchKernelEx(&config, GateFp8ClusterKernel<T>, args);
}

template <typename T>
void LaunchFp8Rows(const GateArgs& args, int64_t num_tokens, const CudaStream& cuda_stream) {
  constexpr int64_t kOneVector = 512 * kVector;  // elements that 512 threads hold in a vector each
  const cudaStream_t stream = cuda_stream.handle();
  const auto grid = static_cast<unsigned>(num_tokens);
  const int64_t n = args.n;
  const bool is_aligned = HasVectors(args, kVector);
  if (is_aligned && TakesClusters<T>(num_tokens, n, cuda_stream)) {
    LaunchClusters<T>(args, num_tokens, stream);
  } else if (is_aligned && n <= kOneVector)
    LaunchOverlapped(GateFp8Kernel<T, 1>, grid, RowThreads(n, kVector, 1), 0, stream, args);
  else if (is_aligned && n <= 2 * kOneVector)
    LaunchOverlapped(GateFp8Kernel<T, 2>, grid, RowThreads(n, kVector, 2), 0, stream, args);
  else if (is_aligned && n <= 8 * kOneVector)
    LaunchOverlapped(GateFp8Kernel<T, 4>, grid, RowThreads(n, kVector, 4), 0, stream, args);
  else
    LaunchOverlapped(GateFp8AnyKernel<T>, grid, RowThreads(n, 1, 1), 0, stream, args);
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
                         .token_factor = p.token_factor,
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
      LaunchFp8Rows<T>(args, p.num_tokens, stream);
    else
      LaunchElements<T>(args, p.num_tokens, stream.handle());
  });
  return inflight::cuda::LaunchStatus("gate");
}

}  // namespace inflight::ops::cuda

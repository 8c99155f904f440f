// SPDX-License-Identifier: Apache-2.0
// FP8 rounding of rows, a scale per token: one CTA per row, held in registers up to 32,768
// elements. Moves 3 * width bytes per token.
#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/row.cuh"

namespace inflight::ops::cuda {
namespace {

struct QuantizeArgs {
  const void* x;  // [num_tokens, width]
  Fp8* y;         // as x
  float* scales;  // [num_tokens]
  int64_t width;
};

template <typename T, int kVectors>
__global__ void __launch_bounds__(kMaxRowThreads) QuantizeKernel(const QuantizeArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + t * args.width;
  uint4 words[kVectors] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j)
    if (RowIndex(j) < args.width) words[j] = LoadOnce(x + RowIndex(j));
  float row[kVectors][kVector];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) Unpack<T>(words[j], row[j]);
  BlockReducer reducer;
  const float largest = reducer.Max(LargestMagnitude(row, args.width));
  StoreFp8Row(row, args.width, largest, args.y + t * args.width, args.scales + t);
}

// Rows of any width at any address, read twice.
template <typename T>
__global__ void __launch_bounds__(kMaxRowThreads) QuantizeAnyKernel(const QuantizeArgs args) {
  BeginOverlapped();
  const int64_t t = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + t * args.width;
  Fp8* y = args.y + t * args.width;
  float largest = 0;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x)
    largest = fmaxf(largest, fabsf(ToFloat(x[i])));
  BlockReducer reducer;
  const float scale = Fp8Scale(reducer.Max(largest));
  const float inverse = 1.0F / scale;
  if (threadIdx.x == 0) args.scales[t] = scale;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x)
    y[i] = FromFloat<Fp8>(ToFloat(x[i]) * inverse);
}

template <typename T>
void Launch(const QuantizeArgs& args, int64_t num_tokens, cudaStream_t stream) {
  constexpr int64_t kOneVector = 512 * kVector;
  const auto grid = static_cast<unsigned>(num_tokens);
  const int64_t width = args.width;
  const bool is_aligned = width % kVector == 0 && IsAligned(args.x) && IsAligned(args.y, kVector);
  if (is_aligned && width <= kOneVector)
    LaunchOverlapped(QuantizeKernel<T, 1>, grid, RowThreads(width, kVector, 1), 0, stream, args);
  else if (is_aligned && width <= 2 * kOneVector)
    LaunchOverlapped(QuantizeKernel<T, 2>, grid, RowThreads(width, kVector, 2), 0, stream, args);
  else if (is_aligned && width <= 8 * kOneVector)
    LaunchOverlapped(QuantizeKernel<T, 4>, grid, RowThreads(width, kVector, 4), 0, stream, args);
  else
    LaunchOverlapped(QuantizeAnyKernel<T>, grid, RowThreads(width, 1, 1), 0, stream, args);
}

}  // namespace

Status Quantize(const QuantizeParams& p, Stream& stream) {
  RETURN_IF_ERROR(ExpectHalf("x", p.x.dtype));
  RETURN_IF_ERROR(ExpectMatrix("x", p.x, {p.x.dtype}));
  const int64_t num_tokens = p.x.shape[0];
  const int64_t width = p.x.shape[1];
  RETURN_IF_ERROR(Expect("y", p.y, {DType::kF8E4M3}, p.x.shape));
  RETURN_IF_ERROR(Expect("scales", p.scales, {DType::kF32}, {num_tokens}));
  if (num_tokens == 0 || width == 0) return Status::Ok();
  const QuantizeArgs args = {
      .x = p.x.data, .y = p.y.as<Fp8>(), .scales = p.scales.as<float>(), .width = width};
  WithHalf(p.x.dtype, [&]<typename T>(std::type_identity<T>) {
    Launch<T>(args, num_tokens, AsCuda(stream).handle());
  });
  return inflight::cuda::LaunchStatus("quantize");
}

}  // namespace inflight::ops::cuda

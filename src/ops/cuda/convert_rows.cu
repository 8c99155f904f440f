// SPDX-License-Identifier: Apache-2.0
// One CTA per quantised row, element by element: rows come over PCIe, which is slower by far.
#include <cmath>

#include "ops/convert_rows.h"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/vector.cuh"
#include "tensor/cuda_status.h"

namespace inflight::ops {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 4096;

template <typename X, typename Y>
__global__ void __launch_bounds__(kThreads) ConvertKernel(const X* x, Y* y, int64_t n) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride)
    y[i] = cuda::FromFloat<Y>(cuda::ToFloat(x[i]));
}

__device__ int8_t Code(float x, float scale, int8_t) {
  return static_cast<int8_t>(fminf(fmaxf(roundf(x / scale), -128.0F), 127.0F));
}
__device__ cuda::Fp8 Code(float x, float scale, cuda::Fp8) {
  return cuda::FromFloat<cuda::Fp8>(x / scale);
}

// T is the model's dtype.
template <typename X, typename T, typename Y>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(const X* x, Y* y, float* scales, int64_t width) {
  constexpr bool kIsInt8 = std::is_same_v<Y, int8_t>;
  x += blockIdx.x * width;
  y += blockIdx.x * width;
  float largest = 0;
  float other = 0;  // infinity where a value is infinite or NaN: a maximum would lose NaN
  for (int64_t k = threadIdx.x; k < width; k += kThreads) {
    const float magnitude = fabsf(cuda::Rounded<T>(cuda::ToFloat(x[k])));
    if (magnitude < INFINITY)
      largest = fmaxf(largest, magnitude);
    else
      other = INFINITY;
  }
  cuda::BlockReducer reducer;
  largest = reducer.Max(largest);
  other = reducer.Max(other);
  const float scale = other > 0 ? NAN : kIsInt8 ? largest / 128.0F : cuda::Fp8Scale(largest);
  for (int64_t k = threadIdx.x; k < width; k += kThreads)
    y[k] = scale > 0 ? Code(cuda::Rounded<T>(cuda::ToFloat(x[k])), scale, Y()) : Y();
  if (threadIdx.x == 0) scales[blockIdx.x] = kIsInt8 ? cuda::Rounded<T>(scale) : scale;
}

template <typename X, typename T>
Status Launch(const ConvertRowsParams& p, cudaStream_t stream) {
  const auto* x = static_cast<const X*>(p.x);
  const int64_t n = p.num_rows * p.width;
  const auto rows = static_cast<unsigned>(p.num_rows);
  const auto ctas = static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMaxCtas));
  if (p.y_dtype == DType::kI8)
    QuantizeKernel<X, T>
        <<<rows, kThreads, 0, stream>>>(x, static_cast<int8_t*>(p.y), p.scales, p.width);
  else if (p.y_dtype == DType::kF8E4M3)
    QuantizeKernel<X, T>
        <<<rows, kThreads, 0, stream>>>(x, static_cast<cuda::Fp8*>(p.y), p.scales, p.width);
  else
    ConvertKernel<<<ctas, kThreads, 0, stream>>>(x, static_cast<T*>(p.y), n);
  return inflight::cuda::LaunchStatus("convert_rows");
}

template <typename T>
Status LaunchFor(const ConvertRowsParams& p, cudaStream_t stream) {
  switch (p.x_dtype) {
    case DType::kF32:
      return Launch<float, T>(p, stream);
    case DType::kF16:
      return Launch<__half, T>(p, stream);
    case DType::kBF16:
      return Launch<__nv_bfloat16, T>(p, stream);
    default:
      return InvalidArgument("x: float32, float16 or bfloat16 is needed");
  }
}

}  // namespace

Status ConvertRowsOnGpu(const ConvertRowsParams& p, void* stream) {
  const bool is_quantized = p.y_dtype == DType::kI8 || p.y_dtype == DType::kF8E4M3;
  if (!is_quantized && p.y_dtype != p.dtype)
    return InvalidArgument("y: the model's dtype, i8 or f8e4m3 is needed");
  if (is_quantized && p.scales == nullptr)
    return InvalidArgument("scales: are needed for quantised rows");
  if (p.num_rows == 0 || p.width == 0) return Status::Ok();
  const auto handle = static_cast<cudaStream_t>(stream);
  switch (p.dtype) {
    case DType::kF16:
      return LaunchFor<__half>(p, handle);
    case DType::kBF16:
      return LaunchFor<__nv_bfloat16>(p, handle);
    default:
      return InvalidArgument("dtype: a model of float16 or bfloat16 is needed");
  }
}

}  // namespace inflight::ops

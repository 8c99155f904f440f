// SPDX-License-Identifier: Apache-2.0
// One CTA per quantised row, element by element: rows come over PCIe, which is slower by far.
#include <cmath>

#include "ops/convert_rows.h"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/weight.h"
#include "tensor/cuda_status.h"
#include "tensor/element.h"

namespace inflight::ops {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 4096;

struct Int4Pair {
  uint8_t bits;
};

template <typename X, typename Y>
__global__ void __launch_bounds__(kThreads) ConvertKernel(const X* x, Y* y, int64_t n) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride)
    y[i] = cuda::FromFloat<Y>(cuda::ToFloat(x[i]));
}

// What a quantised row is written in: one element or two.
template <typename Y>
struct Codes;

template <>
struct Codes<int8_t> {
  static constexpr int kElements = 1;
  static constexpr float kRange = 128;
};
template <>
struct Codes<Int4Pair> {
  static constexpr int kElements = 2;
  static constexpr float kRange = 8;
};
template <>
struct Codes<cuda::Fp8> {
  static constexpr int kElements = 1;
};

__device__ int Integer(float x, float scale, float range) {
  return static_cast<int>(fminf(fmaxf(roundf(x / scale), -range), range - 1));
}

// value(i) is element i of those that one Y holds.
template <typename Y, typename Value>
__device__ Y Code(const Value& value, float scale) {
  if constexpr (std::is_same_v<Y, cuda::Fp8>)
    return cuda::FromFloat<cuda::Fp8>(value(0) / scale);
  else if constexpr (std::is_same_v<Y, Int4Pair>)
    return {PackInt4(Integer(value(0), scale, Codes<Y>::kRange),
                     Integer(value(1), scale, Codes<Y>::kRange))};
  else
    return static_cast<int8_t>(Integer(value(0), scale, Codes<Y>::kRange));
}

template <typename Y>
__device__ float ScaleOf(float largest) {
  if constexpr (std::is_same_v<Y, cuda::Fp8>)
    return cuda::Fp8Scale(largest);
  else
    return largest / Codes<Y>::kRange;
}

// T is the model's dtype.
template <typename X, typename T, typename Y>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(const X* x, Y* y, float* scales, int64_t width) {
  constexpr bool kIsFp8 = std::is_same_v<Y, cuda::Fp8>;
  constexpr int kElements = Codes<Y>::kElements;
  x += blockIdx.x * width;
  y += blockIdx.x * (width / kElements);
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
  const float scale = other > 0 ? NAN : ScaleOf<Y>(largest);
  for (int64_t i = threadIdx.x; i < width / kElements; i += kThreads) {
    const auto value = [&](int j) { return cuda::Rounded<T>(cuda::ToFloat(x[i * kElements + j])); };
    y[i] = scale > 0 ? Code<Y>(value, scale) : Y();
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = kIsFp8 ? scale : cuda::Rounded<T>(scale);
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
  else if (p.y_dtype == DType::kI4)
    QuantizeKernel<X, T>
        <<<rows, kThreads, 0, stream>>>(x, static_cast<Int4Pair*>(p.y), p.scales, p.width);
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
  const bool is_quantized = IsInteger(p.y_dtype) || p.y_dtype == DType::kF8E4M3;
  if (!is_quantized && p.y_dtype != p.dtype)
    return InvalidArgument("y: the model's dtype, i8, i4 or f8e4m3 is needed");
  if (p.y_dtype == DType::kI4 && p.width % 2 != 0)
    return InvalidArgument("width: an even number is needed for rows of i4");
  if (is_quantized && p.scales == nullptr)
    return InvalidArgument("scales: are needed for quantised rows");
  if (p.num_rows == 0 || p.width == 0) return Status::Ok();
  const auto handle = static_cast<cudaStream_t>(stream);
  switch (p.dtype) {
    case DType::kF32:
      return LaunchFor<float>(p, handle);
    case DType::kF16:
      return LaunchFor<__half>(p, handle);
    case DType::kBF16:
      return LaunchFor<__nv_bfloat16>(p, handle);
    default:
      return InvalidArgument("dtype: a model of float32, float16 or bfloat16 is needed");
  }
}

}  // namespace inflight::ops

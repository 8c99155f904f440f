// SPDX-License-Identifier: Apache-2.0
// int8 weights to the model's dtype, for products of many rows: 3 bytes moved per element.
#include <algorithm>

#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxChunks = 65535;
constexpr int kCodes = 16;  // in one load

// Four codes, the first in the low byte.
__device__ void UnpackInt8(uint32_t word, float scale, float* out) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    out[k] = static_cast<float>(static_cast<int8_t>(word >> (8 * k))) * scale;
}

// CTA (n, c): the units of kWidth elements [c * kThreads, (c + 1) * kThreads) of row n, and those
// gridDim.y chunks on. kWidth is 16, or 1 where rows are not aligned.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    DequantizeInt8Kernel(const int8_t* w, const float* scales, int64_t k, T* out) {
  const int64_t n = blockIdx.x;
  const float scale = scales[n];
  w += n * k;
  out += n * k;
  for (int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth; i < k;
       i += int64_t{gridDim.y} * kThreads * kWidth) {
    if constexpr (kWidth == 1) {
      out[i] = FromFloat<T>(static_cast<float>(w[i]) * scale);
    } else {
      const uint4 codes = LoadOnce(w + i);
      float low[kVector];
      float high[kVector];
      UnpackInt8(codes.x, scale, low);
      UnpackInt8(codes.y, scale, low + 4);
      UnpackInt8(codes.z, scale, high);
      UnpackInt8(codes.w, scale, high + 4);
      Store(out + i, low);
      Store(out + i + kVector, high);
    }
  }
}

template <typename T>
void Launch(const Weight& weight, T* out, cudaStream_t stream) {
  const int64_t k = weight.in_features;
  const auto* w = static_cast<const int8_t*>(weight.data);
  const bool is_aligned = k % kCodes == 0 && IsAligned(w) && IsAligned(out);
  const int64_t per_cta = int64_t{kThreads} * (is_aligned ? kCodes : 1);
  const int64_t chunks = std::min((k + per_cta - 1) / per_cta, kMaxChunks);
  const dim3 grid(static_cast<unsigned>(weight.out_features), static_cast<unsigned>(chunks));
  if (is_aligned)
    DequantizeInt8Kernel<T, kCodes><<<grid, kThreads, 0, stream>>>(w, weight.scales, k, out);
  else
    DequantizeInt8Kernel<T, 1><<<grid, kThreads, 0, stream>>>(w, weight.scales, k, out);
}

}  // namespace

Status DequantizeInt8(const Weight& weight, DType dtype, void* out, CudaStream& stream) {
  RETURN_IF_ERROR(ExpectHalf("dtype", dtype));
  if (weight.dtype != DType::kI8 || weight.layout != WeightLayout::kRowMajor ||
      weight.scales == nullptr)
    return InvalidArgument("weight: got " + std::string(DTypeName(weight.dtype)) + " " +
                           std::string(WeightLayoutName(weight.layout)) +
                           ", needed row-major int8 with scales");
  if (weight.out_features == 0 || weight.in_features == 0) return Status::Ok();
  WithHalf(dtype, [&]<typename T>(std::type_identity<T>) {
    Launch<T>(weight, static_cast<T*>(out), stream.handle());
  });
  return inflight::cuda::LaunchStatus("dequantize_int8");
}

}  // namespace inflight::ops::cuda

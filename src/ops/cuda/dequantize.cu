// SPDX-License-Identifier: Apache-2.0
// int8 and int4 weights to the model's dtype, for products of many rows: 3 and 2.5 bytes moved per
// element.
#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxChunks = 65535;
constexpr int kLoadBytes = 16;

// Code i of a word that holds 4 * kPerByte of them, the first in the low bits.
template <int kPerByte>
__device__ float CodeAt(uint32_t word, int i) {
  constexpr int kBits = 8 / kPerByte;
  return static_cast<float>(static_cast<int32_t>(word << (32 - kBits * (i + 1))) >> (32 - kBits));
}

// CTA (n, c): the units of kUnit bytes [c * kThreads, (c + 1) * kThreads) of row n, and those
// gridDim.y chunks on. kUnit is kLoadBytes, or 1 where rows are not aligned.
template <typename T, int kPerByte, int kUnit>
__global__ void __launch_bounds__(kThreads)
    DequantizeKernel(const uint8_t* w, const float* scales, int64_t row_bytes, T* out) {
  const int64_t n = blockIdx.x;
  const float scale = scales[n];
  w += n * row_bytes;
  out += n * row_bytes * kPerByte;
  for (int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kUnit; i < row_bytes;
       i += int64_t{gridDim.y} * kThreads * kUnit) {
    T* const to = out + i * kPerByte;
    if constexpr (kUnit == 1) {
#pragma unroll
      for (int j = 0; j < kPerByte; ++j) to[j] = FromFloat<T>(CodeAt<kPerByte>(w[i], j) * scale);
    } else {
      const uint4 codes = LoadOnce(w + i);
      const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
      constexpr int kWords = kVector / (4 * kPerByte);  // that make one store
#pragma unroll
      for (int first = 0; first < 4; first += kWords) {
        float values[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          values[j] =
              CodeAt<kPerByte>(words[first + j / (4 * kPerByte)], j % (4 * kPerByte)) * scale;
        Store(to + first * 4 * kPerByte, values);
      }
    }
  }
}

template <typename T, int kPerByte>
void Launch(const Weight& weight, T* out, cudaStream_t stream) {
  const int64_t row_bytes = weight.in_features / kPerByte;
  const auto* w = static_cast<const uint8_t*>(weight.data);
  const bool is_aligned = row_bytes % kLoadBytes == 0 && IsAligned(w) && IsAligned(out);
  const int64_t per_cta = int64_t{kThreads} * (is_aligned ? kLoadBytes : 1);
  const int64_t chunks = std::min((row_bytes + per_cta - 1) / per_cta, kMaxChunks);
  const dim3 grid(static_cast<unsigned>(weight.out_features), static_cast<unsigned>(chunks));
  if (is_aligned)
    DequantizeKernel<T, kPerByte, kLoadBytes>
        <<<grid, kThreads, 0, stream>>>(w, weight.scales, row_bytes, out);
  else
    DequantizeKernel<T, kPerByte, 1>
        <<<grid, kThreads, 0, stream>>>(w, weight.scales, row_bytes, out);
}

}  // namespace

Status Dequantize(const Weight& weight, DType dtype, void* out, CudaStream& stream) {
  RETURN_IF_ERROR(ExpectHalf("dtype", dtype));
  const bool is_int4 = weight.dtype == DType::kI4;
  if (!IsInteger(weight.dtype) || weight.layout != WeightLayout::kRowMajor ||
      weight.scales == nullptr || (is_int4 && weight.in_features % 2 != 0))
    return InvalidArgument("weight: got " + std::string(DTypeName(weight.dtype)) + " " +
                           std::string(WeightLayoutName(weight.layout)) +
                           ", needed row-major int8, or int4 of even rows, with scales");
  if (weight.out_features == 0 || weight.in_features == 0) return Status::Ok();
  WithHalf(dtype, [&]<typename T>(std::type_identity<T>) {
    if (is_int4)
      Launch<T, 2>(weight, static_cast<T*>(out), stream.handle());
    else
      Launch<T, 1>(weight, static_cast<T*>(out), stream.handle());
  });
  return inflight::cuda::LaunchStatus("dequantize");
}

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
// The other half of experts: the product of each place, times its weight, and their sum over the
// experts of a token.
#include "ops/cuda/expert_product.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kSumThreads = 128;

// CTA (t, c): columns [4 * kSumThreads * c, ...) of token t, four of a thread.
template <typename T, bool kHasAll>
__global__ void __launch_bounds__(kSumThreads) ExpertSumKernel(const ExpertSum p) {
  BeginOverlapped();
  const int column =
      (static_cast<int>(blockIdx.y) * kSumThreads + static_cast<int>(threadIdx.x)) * 4;
  if (column >= p.width) return;
  const int32_t* const places = p.places + int64_t{blockIdx.x} * p.per_token;
  float4 sum = {};
#pragma unroll 8
  for (int j = 0; j < p.per_token; ++j) {
    if (!kHasAll && places[j] < 0) continue;
    const float4 part =
        *reinterpret_cast<const float4*>(p.parts + int64_t{places[j]} * p.width + column);
    sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
  }
  T* const y = static_cast<T*>(p.y) + int64_t{blockIdx.x} * p.width + column;
  if constexpr (std::is_same_v<T, float>)
    *reinterpret_cast<float4*>(y) = sum;
  else
    *reinterpret_cast<uint2*>(y) = {PackTwo<T>(sum.x, sum.y), PackTwo<T>(sum.z, sum.w)};
}

template <typename T>
Status LaunchSumOf(const ExpertSum& sum, CudaStream& stream) {
  constexpr int kColumns = 4 * kSumThreads;
  const dim3 grid(static_cast<unsigned>(sum.num_tokens),
                  static_cast<unsigned>((sum.width + kColumns - 1) / kColumns));
  const auto kernel = sum.has_all ? ExpertSumKernel<T, true> : ExpertSumKernel<T, false>;
  return inflight::cuda::ToStatus(
      LaunchOverlapped(kernel, grid, dim3(kSumThreads), 0, stream.handle(), sum), "expert_sum");
}

}  // namespace

Status LaunchExpertDown(const ExpertProduct& product, CudaStream& stream) {
  if (product.packed) return LaunchPackedExpertDown(product, stream);
  if (product.dtype == DType::kF8E4M3)
    return LaunchExpertProduct<Fp8, float, /*kIsGated=*/false>(product, stream);
  return WithHalf(product.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return LaunchExpertProduct<T, float, /*kIsGated=*/false>(product, stream);
  });
}

Status LaunchExpertSum(const ExpertSum& sum, CudaStream& stream) {
  if (sum.y_dtype == DType::kF32) return LaunchSumOf<float>(sum, stream);
  return WithHalf(sum.y_dtype, [&](auto type) {
    return LaunchSumOf<typename decltype(type)::type>(sum, stream);
  });
}

}  // namespace inflight::ops::cuda

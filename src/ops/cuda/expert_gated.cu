// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/expert_product.cuh"

namespace inflight::ops::cuda {

Status LaunchExpertGated(const ExpertProduct& product, CudaStream& stream) {
  if (product.packed) return LaunchPackedExpertGated(product, stream);
  return WithHalf(product.y_dtype, [&](auto type) {
    using Y = typename decltype(type)::type;
    if (product.dtype == DType::kF8E4M3)
      return LaunchExpertProduct<Fp8, Y, /*kIsGated=*/true>(product, stream);
    return LaunchExpertProduct<Y, Y, /*kIsGated=*/true>(product, stream);
  });
}

}  // namespace inflight::ops::cuda

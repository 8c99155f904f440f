// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/expert_packed.cuh"

namespace inflight::ops::cuda {

Status LaunchPackedExpertGated(const ExpertProduct& product, CudaStream& stream) {
  return WithHalf(product.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr bool kIsGated = true;
    return product.exponents != nullptr
               ? LaunchPackedExperts<Float4Experts, T, T, kIsGated>(product, stream)
               : LaunchPackedExperts<Fp8Experts, T, T, kIsGated>(product, stream);
  });
}

}  // namespace inflight::ops::cuda

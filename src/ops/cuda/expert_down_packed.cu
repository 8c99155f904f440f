// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/expert_packed.cuh"

namespace inflight::ops::cuda {

Status LaunchPackedExpertDown(const ExpertProduct& product, CudaStream& stream) {
  return WithHalf(product.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr bool kIsGated = false;
    return product.exponents != nullptr
               ? LaunchPackedExperts<Float4Experts, T, float, kIsGated>(product, stream)
               : LaunchPackedExperts<Fp8Experts, T, float, kIsGated>(product, stream);
  });
}

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/expert_packed.cuh"

namespace inflight::ops::cuda {

Status LaunchPackedExpertDown(const ExpertProduct& product, CudaStream& stream) {
  return WithHalf(product.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto launch = [&]<typename Form>() {
      return LaunchPackedExperts<Form, T, float, /*kIsGated=*/false>(product, stream);
    };
    return WithPackedForm(*product.packed, launch);
  });
}

}  // namespace inflight::ops::cuda

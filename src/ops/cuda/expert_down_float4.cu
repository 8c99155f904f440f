// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/expert_float4.cuh"

namespace inflight::ops::cuda {

Status LaunchFloat4ExpertDown(const ExpertProduct& product, CudaStream& stream) {
  return WithHalf(product.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return LaunchFloat4Experts<T, float, /*kIsGated=*/false>(product, stream);
  });
}

}  // namespace inflight::ops::cuda

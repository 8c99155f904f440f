// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/expert_float4.cuh"

namespace inflight::ops::cuda {

Status LaunchFloat4ExpertGated(const ExpertProduct& product, CudaStream& stream) {
  return WithHalf(product.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return LaunchFloat4Experts<T, T, /*kIsGated=*/true>(product, stream);
  });
}

}  // namespace inflight::ops::cuda

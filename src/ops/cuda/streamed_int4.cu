// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/streamed_integers_launch.cuh"

namespace inflight::ops::cuda::streamed_integers {

Status LaunchInt4(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  return LaunchBits<Codes::kInt4>(maps, args, plan, stream);
}

bool HasCode() {
  static const bool has_code = HasBody(Kernel<__nv_bfloat16, Codes::kInt4, 32, 1>);
  return has_code;
}

}  // namespace inflight::ops::cuda::streamed_integers

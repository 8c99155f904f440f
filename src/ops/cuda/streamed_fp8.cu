// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/streamed_integers_launch.cuh"

namespace inflight::ops::cuda::streamed_integers {

Status LaunchFp8(const Maps& maps, const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  return LaunchBits<Codes::kFp8>(maps, args, plan, stream);
}

}  // namespace inflight::ops::cuda::streamed_integers

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/skinny_integers.cuh"

namespace inflight::ops::cuda::skinny_integers {

Status LaunchFp8(const Args& args, const LaunchPlan& plan, CudaStream& stream) {
  return LaunchBits<Codes::kFp8>(args, plan, stream);
}

}  // namespace inflight::ops::cuda::skinny_integers

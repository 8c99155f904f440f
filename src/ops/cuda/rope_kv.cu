// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status RopeKv(const QkvRopeKvParams&, const PendingScales&, CudaStream&) { return Unimplemented("rope_kv"); }

}  // namespace inflight::ops::cuda

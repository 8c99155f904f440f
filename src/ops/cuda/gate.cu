// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status Gate(const GateParams&, CudaStream&) { return Unimplemented("gate"); }

}  // namespace inflight::ops::cuda

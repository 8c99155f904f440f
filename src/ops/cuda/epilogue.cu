// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status Epilogue(const EpilogueParams&, CudaStream&) { return Unimplemented("epilogue"); }

}  // namespace inflight::ops::cuda

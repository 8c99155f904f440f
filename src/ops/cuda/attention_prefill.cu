// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {


}  // namespace inflight::ops::cuda

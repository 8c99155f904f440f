// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status Quantize(const QuantizeParams&, Stream&) { return Unimplemented("quantize"); }

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status Embed(const EmbedParams&, Stream&) { return Unimplemented("embed"); }

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status PlanAttention(const AttentionPlanParams&, Stream&) { return Unimplemented("plan"); }
size_t AttentionPlanBytes(int, int) { return 0; }
size_t AttentionPartialBytes(const ShapeClass&, int, int) { return 0; }
size_t AttentionCounterBytes(const ShapeClass&, int) { return 0; }

}  // namespace inflight::ops::cuda

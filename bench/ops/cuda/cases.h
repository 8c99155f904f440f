// SPDX-License-Identifier: Apache-2.0
// The cases of cuda_ops_bench, by the files that hold them.
#pragma once

#include "timing.h"

namespace inflight::bench {

void AttentionCases(CudaBench& bench);
void DecodeLayersCases(CudaBench& bench);
void ElementwiseCases(CudaBench& bench);
void LinearCases(CudaBench& bench);
void LoraCases(CudaBench& bench);
void SamplerCases(CudaBench& bench);

}  // namespace inflight::bench

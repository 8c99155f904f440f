// SPDX-License-Identifier: Apache-2.0
// The linear of up to 64 tokens by wgmma (streamed.cuh): where it takes a product, and how it cuts
// it. Operators take the cut that measurements chose; tests and benches try others.
#pragma once

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

// Whether it can run this product: at most 64 tokens, code for the GPU in use (sm_90a).
bool StreamedCanRun(const GemmParams& params);
// Whether it takes the product: where it can, beats the library and is not beaten by SkinnyMma.
bool PreferStreamed(const GemmParams& params, const CudaStream& stream);

// CTAs that share the rows of a tile, 1 to 8: each has a part of k.
int StreamedSplits(const GemmParams& params, const CudaStream& stream);
Status Streamed(const GemmParams& params, int num_splits, CudaStream& stream);
Status Streamed(const GemmParams& params, CudaStream& stream);

}  // namespace inflight::ops::cuda

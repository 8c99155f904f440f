// SPDX-License-Identifier: Apache-2.0
// The linear of int8 and int4 weights by wgmma (streamed_integers.cuh), for more tokens than
// SkinnyIntegers has: where it takes a product, and how it cuts it. Operators take the cut that
// measurements chose; tests and benches try others.
#pragma once

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

// Whether it can run this product: float16 or bfloat16, y of that dtype or float32, a weight in the
// order of tensor cores (ops/tensor_core_order.h) whose slabs have at most 4 groups, code for the
// GPU in use (sm_90a).
bool StreamedIntegersCanRun(const GemmParams& params, const Weight& weight);
// Whether operators take it rather than SkinnyIntegers or a weight that is widened in the
// workspace: where it can, from the tokens on at which it is faster, and not on streams of
// OpChoice::kFixed, as the order of sums depends on the number of tokens.
bool PreferStreamedIntegers(const GemmParams& params, const Weight& weight,
                            const CudaStream& stream);

// CTAs that share the rows of a tile, 1 to 8: each has a part of k.
int StreamedIntegersSplits(const GemmParams& params, const Weight& weight,
                           const CudaStream& stream);
Status StreamedIntegers(const GemmParams& params, const Weight& weight, int num_splits,
                        CudaStream& stream);
Status StreamedIntegers(const GemmParams& params, const Weight& weight, CudaStream& stream);

}  // namespace inflight::ops::cuda

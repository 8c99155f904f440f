// SPDX-License-Identifier: Apache-2.0
// The streaming linear for few tokens: where it beats the library, and how it cuts a product among
// CTAs. Operators take the cut that measurements chose; tests and benches try others.
#pragma once

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

// Whether the streaming kernel can run this product and beats the library.
bool PreferSkinny(const GemmParams& params);

// One CTA per multiprocessor computes `row_tiles` * 16 rows of w at a time, over all of k.
struct MmaCut {
  int row_tiles = 2;    // 1..4
  int stages = 4;       // 2..8: copies of about 4 KiB that a warp keeps in flight
  bool overlap = true;  // start while the kernel before is still running (overlap.cuh)
};
MmaCut SkinnyMmaCut(const GemmParams& params, const CudaStream& stream);
Status SkinnyMma(const GemmParams& params, const MmaCut& cut, CudaStream& stream);

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
// The streaming linear for few tokens whose weights are int8 or int4: they become the activations'
// dtype in registers, exactly (skinny_integers.cuh). Where it runs, and how it cuts a product among
// CTAs. Operators take the cut of SkinnyIntegersCut; tests and benches try others.
#pragma once

#include "ops/cuda/kernels.h"
#include "ops/cuda/skinny.h"

namespace inflight::ops::cuda {

// Whether a launch can compute this product. `params.w`, n and k are the weight's. True where all
// of these hold:
//   - at most 16 tokens, float16 or bfloat16, and y of that dtype or float32
//   - the weight is in the order of tensor cores (ops/tensor_core_order.h)
//   - the ring fits into the GPU's shared memory (9 to 16 tokens do not everywhere)
// The answer is the same for 1 to 8 tokens, and for 9 to 16.
bool SkinnyIntegersCanRun(const GemmParams& params, const Weight& weight, const CudaStream& stream);

// Whether operators take it for this product rather than widen the weight to the activations' dtype
// in the workspace, which moves 2 bytes of each element twice more: launches of 16 tokens can run,
// tokens are at most 32 (three launches take longer: bench/results/h200-llama-3-8b.md), and the
// stream is not of OpChoice::kFixed, for a token has the same bits among 1 to 8 tokens and among 9
// to 16 alone.
bool PreferSkinnyIntegers(const GemmParams& params, const Weight& weight, const CudaStream& stream);

struct IntegersCut {
  int row_tiles = 2;    // 1..3, of 16 rows
  int split = 8;        // warps that share a tile's k: 1, 2, 4 or 8
  int stages = 4;       // 2..8 copies that a warp keeps in flight, as many of them as fit
  bool overlap = true;  // start while the kernel before is still running (overlap.cuh)
};
IntegersCut SkinnyIntegersCut(const GemmParams& params, const Weight& weight,
                              const CudaStream& stream);
Status SkinnyIntegers(const GemmParams& params, const Weight& weight, const IntegersCut& cut,
                      CudaStream& stream);
// Of any number of tokens: in launches of at most 16, of as equal numbers as there can be.
Status SkinnyIntegers(const GemmParams& params, const Weight& weight, CudaStream& stream);

}  // namespace inflight::ops::cuda

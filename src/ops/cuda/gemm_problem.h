// SPDX-License-Identifier: Apache-2.0
// One product in cuBLASLt's words. Column-major, as the library reads: A = w (op T, k x n), B = x
// (k x m), D = y (n x m). All three are our row-major tensors as they stand.
#pragma once

#include <cublasLt.h>

#include <string>
#include <string_view>

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

Status LtStatus(cublasStatus_t status, std::string_view what = "cuBLASLt");

inline int64_t StrideOf(const GemmParams& p) { return p.y_stride == 0 ? p.n : p.y_stride; }
// The largest power of two, at most 16, that divides the address of every row of y.
int32_t AlignmentOfY(const GemmParams& p);
std::string DescriptionOf(const GemmParams& p);

// On the stack: making one takes no memory and well under a microsecond.
struct GemmProblem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t w, x, y;

  Status Describe(const GemmParams& params, bool fast_accumulation);
};

// Memory full of numbers that cost the tensor cores what real ones do (zeros
// run 13 % faster); of FP8 no NaN. Waits for the stream.
Status FillRandomly(std::byte* data, size_t size, DType dtype, CudaStream& stream);

}  // namespace inflight::ops::cuda

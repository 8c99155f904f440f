// SPDX-License-Identifier: Apache-2.0
// Products of matrices, exactly, and how far those of the tensor cores may be from them.
//
// A sum of k products differs from the exact one by at most k u sum|x w| in float32 (compare.h),
// FP8 sums by what the tensor cores drop on the way (kFp8Error); then it is rounded to y's dtype.
// Beside each element the whole is held to a relative error of 5e-3 (docs/reference/kernels.md,
// "Accuracy").
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "support.h"

namespace inflight::ops {

// Tensor cores align FP8 products of one instruction, and with fast accumulation also the sum so
// far, to the largest of them and keep 13 bits behind its first (arXiv:2412.19437, 3.3.2).
constexpr double kFp8Error = 0x1p-11;

// Rows of x times rows of w, exactly, and the sum of the absolute values of their products.
struct Sums {
  Sums(CpuPool& pool, const Tensor& x, const Tensor& w);

  int64_t n;
  std::vector<double> exact, absolute;  // [m, n]
};

// What a product of `k` terms in `dtype` may be off before it is rounded.
double ProductBound(DType dtype, int64_t k, double absolute);

// Succeeds if every got[i] is within bound[i] of want[i] once rounded to its dtype, and all of them
// within 5e-3 of the whole.
testing::AssertionResult Near(const Tensor& got, const std::vector<double>& want,
                              const std::vector<double>& bound);

}  // namespace inflight::ops

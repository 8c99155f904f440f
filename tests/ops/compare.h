// SPDX-License-Identifier: Apache-2.0
// Bounds on what a correct kernel may differ from the reference, and the comparison that prints the
// worst element when it differs by more.
//
// u = 2^-24 is the unit roundoff of float32. A float32 sum of n terms, in any order and with or
// without fused multiply-add, differs from the exact one by at most n u sum|terms| (Higham,
// Accuracy and Stability of Numerical Algorithms, 4.2); kernel and reference each have that error.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "support.h"

namespace inflight::ops {

inline constexpr double kUnit = 0x1p-24;

// Largest relative error of rounding to `dtype`, once.
double RoundingOf(DType dtype);

// Of |kernel - reference| for a sum of n products whose absolute values add up to abs_sum.
inline double SumBound(int64_t n, double abs_sum) {
  return 2 * (static_cast<double>(n) + 2) * kUnit * abs_sum + 1e-30;
}

// What a bound on y becomes where both sides round y to `dtype`.
inline double RoundedBound(double bound, double y, DType dtype) {
  return bound + 2 * RoundingOf(dtype) * (std::abs(y) + bound);
}

// Succeeds if |got[i] - want[i]| <= bound[i] for all i; otherwise names the worst i, both values
// and the bound.
testing::AssertionResult Within(const std::vector<float>& got, const std::vector<float>& want,
                                const std::vector<double>& bound);

// Succeeds if all bits are equal.
testing::AssertionResult SameBits(const std::vector<float>& got, const std::vector<float>& want);

// Tables of this machine but the reference, which is what they are compared with.
std::vector<OpTable> VectorTables(const ShapeClass& shape);
OpTable ReferenceTable();

}  // namespace inflight::ops

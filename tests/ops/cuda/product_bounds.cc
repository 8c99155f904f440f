// SPDX-License-Identifier: Apache-2.0
#include "product_bounds.h"

#include <algorithm>
#include <cmath>

#include "cuda_test.h"

namespace inflight::ops {

Sums::Sums(CpuPool& pool, const Tensor& x, const Tensor& w)
    : n(w.view().shape[0]),
      exact(static_cast<size_t>(x.view().shape[0] * n)),
      absolute(exact.size()) {
  const int64_t k = x.view().shape[1];
  const std::vector<float> a = x.ToFloats(), b = w.ToFloats();
  constexpr int64_t kPart = 256;  // rows of w
  const int64_t parts = (n + kPart - 1) / kPart;
  pool.ParallelFor(x.view().shape[0] * parts, [&](int64_t part) {
    const int64_t i = part / parts;
    const int64_t first = part % parts * kPart;
    for (int64_t j = first; j < std::min(n, first + kPart); ++j) {
      const float* row = &a[static_cast<size_t>(i * k)];
      const float* column = &b[static_cast<size_t>(j * k)];
      double sum = 0, sum_of_absolutes = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double product = static_cast<double>(row[l]) * column[l];
        sum += product;
        sum_of_absolutes += std::abs(product);
      }
      exact[static_cast<size_t>(i * n + j)] = sum;
      absolute[static_cast<size_t>(i * n + j)] = sum_of_absolutes;
    }
  });
}

double ProductBound(DType dtype, int64_t k, double absolute) {
  const double fp8 = dtype == DType::kF8E4M3 ? kFp8Error * absolute : 0;
  return fp8 + static_cast<double>(k + 2) * kUnit * absolute + 1e-30;
}

testing::AssertionResult Near(const Tensor& got, const std::vector<double>& want,
                              const std::vector<double>& bound) {
  std::vector<float> wanted;
  std::vector<double> bounds;
  double errors = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = got.Get(static_cast<int64_t>(i)) - want[i];
    errors += error * error;
    squares += want[i] * want[i];
    wanted.push_back(static_cast<float>(want[i]));
    bounds.push_back(
        AfterRounding(bound[i] + std::abs(want[i]) * kUnit, want[i], got.view().dtype));
  }
  const testing::AssertionResult within = Within(got.ToFloats(), wanted, bounds);
  if (!within || want.empty() || std::sqrt(errors / squares) < 5e-3) return within;
  return testing::AssertionFailure() << "relative error " << std::sqrt(errors / squares);
}

}  // namespace inflight::ops

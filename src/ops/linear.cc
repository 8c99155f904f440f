// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <algorithm>
#include <cmath>

namespace inflight::ops {

// Rows padded to 64 bytes, then a scale and a sum for each, or for each of their groups.
int64_t RoundedRowBytes(int64_t in_features) { return ((in_features + 63) / 64 | 1) * 64; }

size_t LinearScratchBytes(DType weight_dtype, int64_t num_tokens, int64_t in_features,
                          int64_t group_size) {
  if (!IsInteger(weight_dtype)) return 0;
  const int64_t row_bytes = RoundedRowBytes(in_features);
  const int64_t num_groups = group_size == 0 ? 1 : in_features / group_size;
  const auto info_bytes = num_groups * static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
  return static_cast<size_t>(num_tokens * (row_bytes + info_bytes));
}

float Fp8ProductScale(DType sum_dtype, int64_t in_features) {
  constexpr double kLargestHalf = 65504;
  if (sum_dtype != DType::kF16) return 1;
  const double largest = double{Float8E4M3::kMax} * Float8E4M3::kMax *
                         static_cast<double>(std::max<int64_t>(in_features, 1));
  return static_cast<float>(std::exp2(-std::ceil(std::log2(largest / kLargestHalf))));
}

}  // namespace inflight::ops

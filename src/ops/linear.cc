// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

namespace inflight::ops {

// Rows padded to 64 bytes, then a scale and a sum for each.
size_t LinearScratchBytes(DType weight_dtype, int64_t num_tokens, int64_t in_features) {
  if (weight_dtype != DType::kI8) return 0;
  const int64_t row_bytes = (in_features + 63) / 64 * 64;
  const auto info_bytes = static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
  return static_cast<size_t>(num_tokens * (row_bytes + info_bytes));
}

}  // namespace inflight::ops

// SPDX-License-Identifier: Apache-2.0
#include "rope_table.h"

#include <cmath>

namespace inflight::ops {

Tensor CosSinTable(int rotary_dim, int num_positions, const std::vector<int>& positions) {
  const int64_t half = rotary_dim / 2;
  Tensor table(DType::kF32, {num_positions, 2, half});
  for (const int64_t p : positions)
    for (int64_t j = 0; j < half; ++j) {
      const double angle =
          static_cast<double>(p) *
          std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dim));
      table.Set(p * 2 * half + j, static_cast<float>(std::cos(angle)));
      table.Set((p * 2 + 1) * half + j, static_cast<float>(std::sin(angle)));
    }
  return table;
}

}  // namespace inflight::ops

// SPDX-License-Identifier: Apache-2.0
// From exact sums of integers to float32 ones. Included once by each translation unit
// that multiplies integers, after its Vec; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

// Integer sums of (w + kOffset) * x to what PanelArgs promises of them.
template <int32_t kOffset>
void ScaleSums(const PanelArgs& a) {
  for (int r = 0; r < a.num_rows; ++r) {
    const Vec x_scale = Set1(*a.x_scales[r]);
    for (int column = 0; column < a.num_columns; column += 16) {
      float* sums = a.sums + r * kPanelColumns + column;
      const int left = a.num_columns - column;
      const Vec w_scale = LoadFirst(a.w_scales + column, left < 16 ? left : 16);
      const Vec sum = IntegersMinus(Load(sums), kOffset * *a.x_sums[r]);
      Store(sums, Mul(Mul(sum, w_scale), x_scale));
    }
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

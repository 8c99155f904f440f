// SPDX-License-Identifier: Apache-2.0
// What follows a panel product: bias, activation, gate, rounding. Included once by each instruction
// set's translation unit; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

INFLIGHT_INLINE Vec WithBias(const float* sums, const float* bias, int column, int n) {
  const Vec v = Load(sums + column);
  return bias == nullptr ? v : Add(v, LoadFirst(bias + column, n));
}

void Finish(const FinishArgs& a) {
  for (int r = 0; r < a.num_rows; ++r) {
    for (int column = 0; column < a.num_columns; column += 16) {
      const int left = a.num_columns - column;
      const int n = left < 16 ? left : 16;
      Vec v = Apply(a.function, WithBias(a.sums + r * kPanelColumns, a.bias, column, n));
      if (a.up_sums != nullptr)
        v = Mul(v, WithBias(a.up_sums + r * kPanelColumns, a.up_bias, column, n));
      StoreAs(a.y_element, a.y[r], column, v, n);
    }
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

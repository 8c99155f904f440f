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

// min(g, limit) sigmoid(1.702 min(g, limit)) (u + 1), u within the limit on both sides
INFLIGHT_INLINE Vec LimitedGate(Vec gate, Vec up, float limit) {
  const Vec most = Set1(limit);
  const Vec g = Min(most, gate);
  const Vec u = Max(Set1(-limit), Min(most, up));
  return Mul(Mul(g, Sigmoid(Mul(g, Set1(1.702F)))), Add(u, Set1(1.0F)));
}

void Finish(const FinishArgs& a) {
  for (int r = 0; r < a.num_rows; ++r) {
    for (int column = 0; column < a.num_columns; column += 16) {
      const int left = a.num_columns - column;
      const int n = left < 16 ? left : 16;
      const Vec sums = WithBias(a.sums + r * kPanelColumns, a.bias, column, n);
      Vec v = Apply(a.function, sums);
      if (a.up_sums != nullptr) {
        const Vec up = WithBias(a.up_sums + r * kPanelColumns, a.up_bias, column, n);
        v = a.limit > 0 ? LimitedGate(sums, up, a.limit) : Mul(v, up);
      }
      StoreAs(a.y_element, a.y[r], column, v, n);
    }
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

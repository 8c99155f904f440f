// SPDX-License-Identifier: Apache-2.0
// Panel products and their epilogue. Included once by each instruction set's translation unit; all
// names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

// Steps of k after which the next row tile takes over, so that the part of the panel it re-reads is
// still in the first-level cache: 32 KiB.
template <typename Operand>
constexpr int64_t kStepsPerPass =
    32768 / (sizeof(typename Operand::W) * Operand::kStep * kPanelColumns);

template <typename Operand>
void Panel(const PanelArgs& a) {
  using X = typename Operand::X;
  using W = typename Operand::W;
  constexpr int64_t kGroup = 16 * Operand::kStep;
  constexpr int64_t kStride = kPanelColumns * Operand::kStep;
  for (int i = 0; i < a.num_rows * kPanelColumns; i += 16) Store(a.sums + i, Zero());

  const auto* panel = static_cast<const W*>(a.panel);
  const int64_t num_steps = a.in_features / Operand::kStep;
  // A single tile needs no second look at the panel: it runs through at once.
  const int64_t pass = a.num_rows <= Operand::kMaxTileRows ? num_steps : kStepsPerPass<Operand>;
  for (int64_t step = 0; step < num_steps; step += pass) {
    const W* first = panel + step * kStride;
    const W* groups[4] = {first, first + kGroup, first + 2 * kGroup, first + 3 * kGroup};
    const int64_t left = num_steps - step;
    const Product<Operand> product = {reinterpret_cast<const X* const*>(a.x),
                                      step * Operand::kStep,
                                      groups,
                                      kStride,
                                      left < pass ? left : pass,
                                      a.sums,
                                      kPanelColumns};
    product.Run(a.num_rows, 4, /*half_last=*/false);
  }

  if constexpr (Operand::kStep == 2) {
    if (a.in_features % 2 == 0) return;
    X last[kMaxRows][2];  // the odd element and a zero, since what follows in memory is not ours
    const X* rows[kMaxRows];
    for (int r = 0; r < a.num_rows; ++r) {
      last[r][0] = static_cast<const X*>(a.x[r])[a.in_features - 1];
      last[r][1] = 0;
      rows[r] = last[r];
    }
    const W* first = panel + num_steps * kStride;
    const W* groups[4] = {first, first + kGroup, first + 2 * kGroup, first + 3 * kGroup};
    const Product<Operand> product = {rows, 0, groups, kStride, 1, a.sums, kPanelColumns};
    product.Run(a.num_rows, 4, /*half_last=*/false);
  }
}

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

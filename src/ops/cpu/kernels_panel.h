// SPDX-License-Identifier: Apache-2.0
// Panel products: rows by a packed panel of 64 features. Included once by each instruction set's
// translation unit, after kernels_tile.h; all names have internal linkage.
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
  // x of int8 is padded to whole steps; of bf16 the odd element comes last and apart.
  const int64_t num_steps = (a.in_features + (Operand::kStep == 4 ? 3 : 0)) / Operand::kStep;
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

}  // namespace
}  // namespace inflight::ops::cpu

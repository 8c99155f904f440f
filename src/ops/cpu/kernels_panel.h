// SPDX-License-Identifier: Apache-2.0
// Panel products: rows by a packed panel of 64 features. Included once by each instruction set's
// translation unit, after kernels_tile.h; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

// A tile that is not as wide as a panel reads a part of its columns at a time, which no hardware
// foresees: then each pass asks memory for the next one.
constexpr bool kPassesAsk = ColumnGroups(2) < 4;

// Steps of k after which the next tile takes over, so that the part of the panel that tiles of
// other rows re-read is still in the first-level cache; what is asked for goes into the second.
template <typename Operand>
constexpr int64_t kStepsPerPass =
    (kPassesAsk ? 16384 : 32768) / (sizeof(typename Operand::W) * Operand::kStored * kPanelColumns);

// Adds steps [step, step + num_steps), the weights of which begin at `panel`.
template <typename Operand>
void Pass(const PanelArgs& a, int64_t step, const typename Operand::W* panel, int64_t num_steps) {
  using X = typename Operand::X;
  constexpr int64_t kGroup = 16 * Operand::kStored;
  constexpr int64_t kStride = kPanelColumns * Operand::kStored;
  const typename Operand::W* groups[4] = {panel, panel + kGroup, panel + 2 * kGroup,
                                          panel + 3 * kGroup};
  constexpr int64_t kAhead = kStepsPerPass<Operand> * kStride;
  if constexpr (Operand::kStep == 2 && Operand::kHasParts) {
    constexpr int64_t kWidth = kStepsPerPass<Operand> * Operand::kStep;
    alignas(64) float widened[kMaxRows * kWidth];
    const float* rows[kMaxRows];
    for (int r = 0; r < a.num_rows; ++r) {
      const X* x = static_cast<const X*>(a.x[r]) + step * Operand::kStep;
      float* row = widened + r * kWidth;
      for (int64_t k = 0; k < num_steps * Operand::kStep; ++k)
        row[k] = __builtin_bit_cast(float, static_cast<uint32_t>(x[k]) << 16);
      rows[r] = row;
    }
    const Product<typename Operand::Widened, kPassesAsk> product = {
        rows, 0, groups, kStride, num_steps, a.sums, kPanelColumns, kAhead};
    product.Run(a.num_rows, 4, /*half_last=*/false);
  } else {
    const Product<Operand, kPassesAsk> product = {reinterpret_cast<const X* const*>(a.x),
                                                  step * Operand::kStep,
                                                  groups,
                                                  kStride,
                                                  num_steps,
                                                  a.sums,
                                                  kPanelColumns,
                                                  kAhead};
    product.Run(a.num_rows, 4, /*half_last=*/false);
  }
}

template <typename Operand>
void Panel(const PanelArgs& a) {
  using X = typename Operand::X;
  using W = typename Operand::W;
  constexpr int64_t kGroup = 16 * Operand::kStored;
  constexpr int64_t kStride = kPanelColumns * Operand::kStored;
  for (int i = 0; i < a.num_rows * kPanelColumns; i += 16) Store(a.sums + i, Zero());

  const auto* first = static_cast<const W*>(a.panel);
  // x of int8 is padded to whole steps; of bf16 the odd element comes last and apart.
  constexpr int64_t kPadding = Operand::kStep >= 4 ? Operand::kStep - 1 : 0;
  const int64_t num_steps = (a.in_features + kPadding) / Operand::kStep;
  if (a.num_rows <= Operand::kMaxTileRows && ColumnGroups(a.num_rows) == 4) {
    // A single tile runs through the panel at once.
    const W* groups[4] = {first, first + kGroup, first + 2 * kGroup, first + 3 * kGroup};
    const Product<Operand, /*kAsk=*/true> product = {reinterpret_cast<const X* const*>(a.x),
                                                     0,
                                                     groups,
                                                     kStride,
                                                     num_steps,
                                                     a.sums,
                                                     kPanelColumns,
                                                     kAskAheadBytes / int64_t{sizeof(W)}};
    product.Run(a.num_rows, 4, /*half_last=*/false);
  } else {
    constexpr int64_t kMost = kStepsPerPass<Operand>;
    for (int64_t step = 0; step < num_steps; step += kMost)
      Pass<Operand>(a, step, first + step * kStride,
                    num_steps - step < kMost ? num_steps - step : kMost);
  }
  first += num_steps * kStride;

  if constexpr (Operand::kStep == 2) {
    if (a.in_features % 2 == 0) return;
    X last[kMaxRows][2];  // the odd element and a zero, since what follows in memory is not ours
    const X* rows[kMaxRows];
    for (int r = 0; r < a.num_rows; ++r) {
      last[r][0] = static_cast<const X*>(a.x[r])[a.in_features - 1];
      last[r][1] = 0;
      rows[r] = last[r];
    }
    const W* groups[4] = {first, first + kGroup, first + 2 * kGroup, first + 3 * kGroup};
    const Product<Operand> product = {rows, 0, groups, kStride, 1, a.sums, kPanelColumns};
    product.Run(a.num_rows, 4, /*half_last=*/false);
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

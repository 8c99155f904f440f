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
    32768 / (sizeof(typename Operand::W) * Operand::kStored * kPanelColumns);

// How far ahead of its reads a single tile asks memory: a page. The hardware's own prefetchers stop
// where a page ends; with few rows the panel is read faster than they start again. Measured on an
// Intel Xeon (bench/results/cpu-llama-3.2-1b.md): 2048 to 8192 all help, 4096 the most.
constexpr int64_t kAskAheadBytes = 4096;

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
  if (a.num_rows <= Operand::kMaxTileRows) {  // a single tile runs through the panel at once
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
    first += num_steps * kStride;
  } else {
    for (int64_t step = 0; step < num_steps; step += kStepsPerPass<Operand>) {
      const W* groups[4] = {first, first + kGroup, first + 2 * kGroup, first + 3 * kGroup};
      const int64_t num_pass_steps =
          num_steps - step < kStepsPerPass<Operand> ? num_steps - step : kStepsPerPass<Operand>;
      const Product<Operand> product = {reinterpret_cast<const X* const*>(a.x),
                                        step * Operand::kStep,
                                        groups,
                                        kStride,
                                        num_pass_steps,
                                        a.sums,
                                        kPanelColumns};
      product.Run(a.num_rows, 4, /*half_last=*/false);
      first += num_pass_steps * kStride;
    }
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
    const W* groups[4] = {first, first + kGroup, first + 2 * kGroup, first + 3 * kGroup};
    const Product<Operand> product = {rows, 0, groups, kStride, 1, a.sums, kPanelColumns};
    product.Run(a.num_rows, 4, /*half_last=*/false);
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

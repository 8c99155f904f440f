// SPDX-License-Identifier: Apache-2.0
// The register-tiled product that linears and attention share. Included once by each instruction
// set's translation unit, after its Vec; all names have internal linkage.
//
// An Operand (kernels_operands.h, kernels_int8.h, kernels_int4.h, kernels_fp4.h) says how weights
// (or keys, or values) of one element type are read and multiplied. A step of k is one element, one
// pair for bf16, one quad for int8, two of them for int4 and float4.
#pragma once

namespace inflight::ops::cpu {
namespace {

// The same operand where a column group has only eight columns.
template <typename Operand>
struct HalfGroup : Operand {
  INFLIGHT_INLINE static auto LoadW(const typename Operand::W* p) { return Operand::LoadWHalf(p); }
};

// sum[r][g] += x[r] * w[g], the weights in registers; or that part of it.
template <typename Operand, typename Reader, int kRows, int kGroups, typename... Part>
INFLIGHT_INLINE void MultiplyKeepingWeights(Vec (&sum)[kRows][kGroups],
                                            const typename Operand::X* const (&xs)[kRows],
                                            const typename Operand::W* const (&ws)[kGroups],
                                            int64_t step, int64_t w_stride, Part... part) {
  typename Operand::WideW wide[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) wide[g] = Reader::LoadW(ws[g] + step * w_stride);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const typename Operand::WideX one = Operand::LoadX(xs[r] + step * Operand::kStep);
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g)
      sum[r][g] = Operand::Accumulate(sum[r][g], wide[g], one, part...);
  }
}

// What the parts of a step share is read anew, since it would take registers that sums need.
INFLIGHT_INLINE void ForgetLoads() { asm volatile("" ::: "memory"); }

// One step of k in registers: sum[r][g] += x[r] * w[g].
template <typename Operand, typename Reader, int kRows, int kGroups>
INFLIGHT_INLINE void MultiplyStep(Vec (&sum)[kRows][kGroups],
                                  const typename Operand::X* const (&xs)[kRows],
                                  const typename Operand::W* const (&ws)[kGroups], int64_t step,
                                  int64_t w_stride) {
  // The shorter side stays in registers.
  constexpr bool kKeepsX = kRows < kGroups || (kHasFewRegisters && kRows == kGroups);
  if constexpr (kRows > 1 && Operand::kHasParts) {
    ForgetLoads();
    MultiplyKeepingWeights<Operand, Reader>(sum, xs, ws, step, w_stride, StepPart<0>());
    ForgetLoads();
    MultiplyKeepingWeights<Operand, Reader>(sum, xs, ws, step, w_stride, StepPart<1>());
  } else if constexpr (kKeepsX) {
    typename Operand::WideX wide[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) wide[r] = Operand::LoadX(xs[r] + step * Operand::kStep);
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const typename Operand::WideW one = Reader::LoadW(ws[g] + step * w_stride);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][g] = Operand::Accumulate(sum[r][g], one, wide[r]);
    }
  } else {
    MultiplyKeepingWeights<Operand, Reader>(sum, xs, ws, step, w_stride);
  }
}

// sum[r][g] += x[r] * w[g] of steps [0, num_steps). With kAsk each step asks memory for what lies
// `ahead` elements behind its weights: a tile of all columns of a panel into the first-level cache,
// others, which come to it later, into the second.
//
// Where an Operand has kNarrowSteps, its Accumulate adds to lanes of 16 bits, which hold the
// products of so many steps, and AddNarrow adds these up in lanes of 32: fewer instructions than to
// widen each product.
template <typename Operand, typename Reader, bool kAsk, int kRows, int kGroups>
INFLIGHT_INLINE void MultiplySteps(Vec (&sum)[kRows][kGroups],
                                   const typename Operand::X* const (&xs)[kRows],
                                   const typename Operand::W* const (&ws)[kGroups],
                                   int64_t num_steps, int64_t w_stride, int64_t ahead) {
  constexpr int kLocality = kGroups == 4 ? 3 : 2;
  const auto ask = [&](int64_t step) {
    if constexpr (kAsk) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g)
        __builtin_prefetch(ws[g] + step * w_stride + ahead, 0, kLocality);
    }
  };
  if constexpr (Operand::kNarrowSteps == 0) {
#pragma GCC unroll 2
    for (int64_t step = 0; step < num_steps; ++step) {
      ask(step);
      MultiplyStep<Operand, Reader>(sum, xs, ws, step, w_stride);
    }
  } else {
    for (int64_t step = 0; step < num_steps;) {
      const int64_t left = num_steps - step;
      const int64_t end = left < Operand::kNarrowSteps ? num_steps : step + Operand::kNarrowSteps;
      Vec narrow[kRows][kGroups];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) narrow[r][g] = Zero();
      for (; step < end; ++step) {
        ask(step);
        MultiplyStep<Operand, Reader>(narrow, xs, ws, step, w_stride);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) sum[r][g] = AddNarrow(sum[r][g], narrow[r][g]);
    }
  }
}

// tile.template operator()<height>(row) for tiles of at most kMax rows that cover num_rows: of
// equal height, give or take one.
template <int kMax, typename Tile>
INFLIGHT_INLINE void CoverRows(int num_rows, const Tile& tile) {
  const int num_tiles = (num_rows + kMax - 1) / kMax;
  int row = 0;
  for (int i = 0; i < num_tiles; ++i) {
    const int height = (num_rows - row + num_tiles - i - 1) / (num_tiles - i);
    if (height == 1) tile.template operator()<1>(row);
    if (height == 2) tile.template operator()<2>(row);
    if (height == 3) tile.template operator()<3>(row);
    if (height == 4) tile.template operator()<4>(row);
    if constexpr (kMax >= 5)
      if (height == 5) tile.template operator()<5>(row);
    if constexpr (kMax >= 6)
      if (height == 6) tile.template operator()<6>(row);
    row += height;
  }
}

// sums[r][16 g + lane] += sum over steps of x[r] * w[g], groups of sixteen columns.
//
// With kAsk, each step also asks memory for the line `ahead` elements behind each one it reads:
// what the next product will need, where the hardware cannot guess it.
template <typename Operand, bool kAsk = false>
struct Product {
  using X = typename Operand::X;
  using W = typename Operand::W;

  const X* const* x;  // [num_rows]
  int64_t x_offset;   // first element of each row
  const W* const* w;  // [num_groups] first step of each column group
  int64_t w_stride;   // elements from step to step
  int64_t num_steps;
  float* sums;
  int64_t sums_stride;  // elements from row to row
  int64_t ahead = 0;

  // Rows [row, row + kRows) by groups [group, group + kGroups), in registers.
  template <typename Reader, int kRows, int kGroups>
  INFLIGHT_INLINE void Tile(int row, int group) const {
    Vec sum[kRows][kGroups];
    const X* xs[kRows];
    const W* ws[kGroups];
    float* out = sums + row * sums_stride + group * 16;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      xs[r] = x[row + r] + x_offset;
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) sum[r][g] = Load(out + r * sums_stride + g * 16);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) ws[g] = w[group + g];
    MultiplySteps<Operand, Reader, kAsk>(sum, xs, ws, num_steps, w_stride, ahead);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) Store(out + r * sums_stride + g * 16, sum[r][g]);
  }

  template <int kRows>
  [[gnu::noinline]] void Rows(int row, int num_groups, bool half_last) const {
    constexpr int kWide = ColumnGroups(kRows);
    const int full = half_last ? num_groups - 1 : num_groups;
    int group = 0;
    for (; group + kWide <= full; group += kWide) Tile<Operand, kRows, kWide>(row, group);
    for (; group < full; ++group) Tile<Operand, kRows, 1>(row, group);
    if constexpr (Operand::kHasHalfGroups)
      if (half_last) Tile<HalfGroup<Operand>, kRows, 1>(row, group);
  }

  // `half_last`: the last group has eight columns. Its other eight sums are left as they were.
  void Run(int num_rows, int num_groups, bool half_last) const {
    CoverRows<Operand::kMaxTileRows>(
        num_rows, [&]<int kRows>(int row) { Rows<kRows>(row, num_groups, half_last); });
  }
};

}  // namespace
}  // namespace inflight::ops::cpu

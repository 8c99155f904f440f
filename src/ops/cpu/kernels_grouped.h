// SPDX-License-Identifier: Apache-2.0
// Panel products of integer weights with groups: the exact int32 sums of a group, then by its
// scales and offsets into float32 sums, in the order of groups whatever the number of rows.
// Included once by each translation unit that has integer operands, after kernels_panel.h and
// kernels_scale_blocks.h; all names have internal linkage.
//
// What an Operand's Accumulate adds up is (w + kOffset) * x: sums of a group begin at -kOffset
// times its sum of x, or where they are narrow first, lose it at the end.
#pragma once

namespace inflight::ops::cpu {
namespace {

// sums += groups [first_group, end_group) of a.
template <typename Operand, int32_t kOffset, bool kAsk>
struct GroupedProduct {
  using X = typename Operand::X;
  using W = typename Operand::W;
  static constexpr int64_t kStride = kPanelColumns * Operand::kStored;  // bytes of a step
  static constexpr int32_t kLateOffset = kOffset * int32_t{Operand::kNarrowSteps > 0};
  // Where the panel's part is in the first-level cache, rows that have both sums in registers.
  static constexpr int kTileOfGroups = kAsk || kKeptRows == 0 ? Operand::kMaxTileRows : kKeptRows;

  const PanelArgs& a;
  int64_t first_group;
  int64_t end_group;
  int64_t steps;            // of a group: an even number, since groups are of a multiple of 16
  int64_t ahead;            // bytes, of what memory is asked for
  int64_t first_scale = 0;  // the group that a.w_scales and a.w_offsets begin with

  void Run() const {
    CoverRows<kTileOfGroups>(a.num_rows, [&]<int kRows>(int row) { Rows<kRows>(row); });
  }

  template <int kRows>
  [[gnu::noinline]] void Rows(int row) const {
    constexpr int kWide = ColumnGroups(kRows);
    for (int column = 0; column < kPanelColumns; column += 16 * kWide)
      Tile<kRows, kWide>(row, column);
  }

  // Rows [row, row + kRows) by columns [column, column + 16 kWide).
  template <int kRows, int kWide>
  INFLIGHT_INLINE void Tile(int row, int column) const {
    const X* xs[kRows];
    const W* ws[kWide];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      xs[r] = static_cast<const X*>(a.x[row + r]) + first_group * a.group_size;
#pragma GCC unroll 4
    for (int c = 0; c < kWide; ++c)
      ws[c] = static_cast<const W*>(a.panel) + first_group * steps * kStride +
              (column + 16 * c) * Operand::kStored;
    const XSums<kRows> x_sums(a, row);
    Sums<kRows, kWide> sums(a.sums + row * kPanelColumns + column);
    const int64_t num_steps = steps;
    // Scales are asked for as far ahead as weights.
    const int64_t groups_ahead = (ahead - 1) / (num_steps * kStride) + 1;
    for (int64_t group = first_group; group < end_group; ++group) {
      Vec exact[kRows][kWide];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec start = SetIntegers((kLateOffset - kOffset) * x_sums.sums[r][group]);
#pragma GCC unroll 4
        for (int c = 0; c < kWide; ++c) exact[r][c] = start;
      }
      if constexpr (kAsk)
        if (a.w_scale_blocks == nullptr) AskForScales<kWide>(group + groups_ahead, column);
      if constexpr (Operand::kNarrowSteps > 0) {
        MultiplySteps<Operand, Operand, kAsk>(exact, xs, ws, num_steps, kStride, ahead);
      } else {
        int64_t step = 0;
        do {
          MultiplyAsking(exact, xs, ws, step);
          MultiplyAsking(exact, xs, ws, step + 1);
          step += 2;
        } while (step < num_steps);
      }
      sums.BeginGroup();
      if (a.w_offsets == nullptr)
        AddGroup<false>(exact, group, column, x_sums, sums);
      else
        AddGroup<true>(exact, group, column, x_sums, sums);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) xs[r] += a.group_size;
#pragma GCC unroll 4
      for (int c = 0; c < kWide; ++c) ws[c] += num_steps * kStride;
    }
    sums.Keep();
  }

 private:
  // Of the rows of a tile: [num_groups] each.
  template <int kRows>
  struct XSums {
    INFLIGHT_INLINE XSums(const PanelArgs& a, int row) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        scales[r] = a.x_scales[row + r];
        sums[r] = a.x_sums[row + r];
      }
    }
    const float* scales[kRows];
    const int32_t* sums[kRows];
  };

  // The float32 sums of a tile: in registers, or where there are too few in memory.
  template <int kRows, int kWide>
  struct Sums {
    static constexpr bool kInRegisters = kRows <= kKeptRows;
    static constexpr int kHeldRows = kInRegisters * (kRows - 1) + 1;
    static constexpr int kHeldColumns = kInRegisters * (kWide - 1) + 1;
    INFLIGHT_INLINE explicit Sums(float* sums) : out(sums) {
      if constexpr (kInRegisters) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
          for (int c = 0; c < kWide; ++c) kept[r][c] = Load(out + r * kPanelColumns + 16 * c);
      }
    }
    // Sums in memory stay there: where the compiler sees that their place is the same for all
    // groups, it carries them from group to group in registers, and spills the integers in every
    // step.
    INFLIGHT_INLINE void BeginGroup() {
      if constexpr (!kInRegisters) asm("" : "+r"(out));
    }
    INFLIGHT_INLINE Vec Get(int r, int c) const {
      if constexpr (kInRegisters)
        return kept[r][c];
      else
        return Load(out + r * kPanelColumns + 16 * c);
    }
    INFLIGHT_INLINE void Set(int r, int c, Vec sum) {
      if constexpr (kInRegisters)
        kept[r][c] = sum;
      else
        Store(out + r * kPanelColumns + 16 * c, sum);
    }
    INFLIGHT_INLINE void Keep() const {
      if constexpr (kInRegisters) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
          for (int c = 0; c < kWide; ++c) Store(out + r * kPanelColumns + 16 * c, kept[r][c]);
      }
    }
    float* out;
    Vec kept[kHeldRows][kHeldColumns];
  };

  template <int kRows, int kWide>
  INFLIGHT_INLINE void MultiplyAsking(Vec (&exact)[kRows][kWide], const X* const (&xs)[kRows],
                                      const W* const (&ws)[kWide], int64_t step) const {
    if constexpr (kAsk) {
#pragma GCC unroll 4
      for (int c = 0; c < kWide; ++c) __builtin_prefetch(ws[c] + step * kStride + ahead);
    }
    MultiplyStep<Operand, Operand>(exact, xs, ws, step, kStride);
  }

  template <bool kHasOffsets, int kRows, int kWide>
  INFLIGHT_INLINE void AddGroup(const Vec (&exact)[kRows][kWide], int64_t group, int column,
                                const XSums<kRows>& x, Sums<kRows, kWide>& sums) const {
    const int64_t at = (group - first_scale) * kPanelColumns + column;
    const float* const w_offsets = a.w_offsets + (kHasOffsets ? at : 0);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float x_scale = x.scales[r][group];
      const int32_t x_sum = x.sums[r][group];
      const Vec scale = Set1(x_scale);
      const Vec of_offsets = Set1(static_cast<float>(x_sum) * x_scale);
#pragma GCC unroll 4
      for (int c = 0; c < kWide; ++c) {
        const Vec numbers = IntegersMinus(exact[r][c], kLateOffset * x_sum);
        Vec sum = MulAdd(numbers, Mul(scale, ScalesAt(at + 16 * c)), sums.Get(r, c));
        if constexpr (kHasOffsets) sum = MulAdd(of_offsets, Load(w_offsets + 16 * c), sum);
        sums.Set(r, c, sum);
      }
    }
  }

  INFLIGHT_INLINE Vec ScalesAt(int64_t at) const {
    if constexpr (Operand::kHasExponents)
      return HalvesOfE8M0(a.w_exponents + at);
    else
      return Load(a.w_scales + at);
  }

  template <int kWide>
  INFLIGHT_INLINE void AskForScales(int64_t group, int column) const {
    const int64_t at = group * kPanelColumns + column;
    if constexpr (Operand::kHasExponents) {
      __builtin_prefetch(a.w_exponents + at);
      return;
    }
#pragma GCC unroll 4
    for (int c = 0; c < kWide; ++c) {
      __builtin_prefetch(a.w_scales + at + 16 * c);
      if (a.w_offsets != nullptr) __builtin_prefetch(a.w_offsets + at + 16 * c);
    }
  }
};

// Whether the rows of a are a single tile, which runs through the panel at once.
template <typename Operand>
INFLIGHT_INLINE bool IsOneTile(const PanelArgs& a) {
  return a.num_rows <= Operand::kMaxTileRows && ColumnGroups(a.num_rows) == 4;
}

// Groups [first, end) of a; `first_scale` as of GroupedProduct.
template <typename Operand, int32_t kOffset>
INFLIGHT_INLINE void GroupedPass(const PanelArgs& a, int64_t first, int64_t end,
                                 int64_t first_scale) {
  const int64_t steps = a.group_size / Operand::kStep;
  if (IsOneTile<Operand>(a))
    return GroupedProduct<Operand, kOffset, /*kAsk=*/true>{a,     first,          end,
                                                           steps, kAskAheadBytes, first_scale}
        .Run();
  const int64_t ahead = (end - first) * steps * kPanelColumns * Operand::kStored;
  GroupedProduct<Operand, kOffset, kPassesAsk>{a, first, end, steps, ahead, first_scale}.Run();
}

// A pass for as many groups as are expanded at a time.
template <typename Operand, int32_t kOffset>
void PanelOfBlocks(const PanelArgs& a, int64_t num_groups) {
  const int64_t num_blocks = num_groups / a.block_groups;
  const int64_t of_pass = kMaxBlockGroups / a.block_groups;
  ExpandedScales expanded;
  PanelArgs pass = a;
  pass.w_scales = expanded.scales;
  pass.w_offsets = a.w_offset_blocks == nullptr ? nullptr : expanded.offsets;
  for (int64_t block = 0; block < num_blocks; block += of_pass) {
    const int64_t end = num_blocks - block < of_pass ? num_blocks : block + of_pass;
    expanded.Fill(a, block, end);
    const int64_t first = block * a.block_groups;
    GroupedPass<Operand, kOffset>(pass, first, end * a.block_groups, /*first_scale=*/first);
  }
}

template <typename Operand, int32_t kOffset>
void GroupedPanel(const PanelArgs& a) {
  for (int i = 0; i < a.num_rows * kPanelColumns; i += 16) Store(a.sums + i, Zero());
  const int64_t num_groups = a.in_features / a.group_size;
  if (a.w_scale_blocks != nullptr) return PanelOfBlocks<Operand, kOffset>(a, num_groups);
  const int64_t steps = a.group_size / Operand::kStep;
  int64_t of_pass = steps < kStepsPerPass<Operand> ? kStepsPerPass<Operand> / steps : 1;
  if (IsOneTile<Operand>(a)) of_pass = num_groups;
  for (int64_t group = 0; group < num_groups; group += of_pass) {
    const int64_t end = num_groups - group < of_pass ? num_groups : group + of_pass;
    GroupedPass<Operand, kOffset>(a, group, end, /*first_scale=*/0);
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

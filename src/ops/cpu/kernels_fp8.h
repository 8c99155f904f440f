// SPDX-License-Identifier: Apache-2.0
// e4m3 weights in groups of 128 columns times bf16 activations (formula: ops/linear.h). The codes
// of a group become bf16, exactly, in the first-level cache and are multiplied as a panel of bf16
// is; its sums, times the scales, are added to those of the groups before. Included once by each
// translation unit that has a panel product of bf16; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

constexpr int kGroupCodes = kFp8Group * kPanelColumns;
constexpr int kPairsCodes = 32;  // of PairsOfFp8
// As in kernels_panel.h.
constexpr int kCodesAhead = 4096;

INFLIGHT_INLINE void WidenGroup(const uint8_t* codes, uint16_t* bf16) {
#pragma GCC unroll 4
  for (int i = 0; i < kGroupCodes; i += kPairsCodes) {
    if (i % 64 == 0) __builtin_prefetch(codes + i + kCodesAhead);
    StorePairs(bf16 + i, PairsOfFp8(codes + i));
  }
}

// sums[r][n] += of_group[r][n] * scales[n]
INFLIGHT_INLINE void AddScaled(const float* of_group, const float* scales, int num_rows,
                               float* sums) {
  Vec scale[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) scale[c] = Load(scales + 16 * c);
  for (int i = 0; i < num_rows * kPanelColumns; i += kPanelColumns)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const int at = i + 16 * c;
      Store(sums + at, MulAdd(Load(of_group + at), scale[c], Load(sums + at)));
    }
}

// `kPanelBf16` takes as many as kMostRows rows.
template <void (*kPanelBf16)(const PanelArgs&), int kMostRows>
void PanelFp8(const PanelArgs& a) {
  alignas(64) uint16_t widened[kGroupCodes];
  alignas(64) float of_group[kMostRows * kPanelColumns];
  const void* x[kMostRows];
  const int64_t end = a.end == 0 ? a.in_features : a.end;
  if (a.begin == 0)
    for (int i = 0; i < a.num_rows * kPanelColumns; i += 16) Store(a.sums + i, Zero());
  for (int64_t k = a.begin; k < end; k += kFp8Group) {
    WidenGroup(static_cast<const uint8_t*>(a.panel) + k * kPanelColumns, widened);
    for (int r = 0; r < a.num_rows; ++r) x[r] = static_cast<const uint16_t*>(a.x[r]) + k;
    kPanelBf16({.x = x,
                .num_rows = a.num_rows,
                .panel = widened,
                .in_features = kFp8Group,
                .sums = of_group});
    AddScaled(of_group, a.w_scales + k / kFp8Group * kPanelColumns, a.num_rows, a.sums);
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

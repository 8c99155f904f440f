// SPDX-License-Identifier: Apache-2.0
// Adapters of low rank (ops/lora.h): one token's x A^T, and what is added to one panel of its sums.
// Included once by each instruction set's translation unit; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

struct F32Elements {
  using T = float;
  INFLIGHT_INLINE static Vec Read(const T* p) { return Load(p); }
};
struct F16Elements {
  using T = uint16_t;
  INFLIGHT_INLINE static Vec Read(const T* p) { return LoadF16(p); }
};
struct Bf16Elements {
  using T = uint16_t;
  INFLIGHT_INLINE static Vec Read(const T* p) { return LoadBf16(p); }
};

// kRows rows of A at once, so that x is read once for them. Sixteen sums a row, over k in ascending
// order, are added up at the end.
template <typename X, typename W, int kRows>
INFLIGHT_INLINE void ShrinkRows(const ShrinkArgs& a, int first) {
  const auto* x = static_cast<const typename X::T*>(a.x);
  const auto* w = static_cast<const typename W::T*>(a.a) + first * a.stride;
  Vec sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = Zero();
  int64_t k = 0;
  for (; k + 16 <= a.size; k += 16) {
    const Vec v = X::Read(x + k);
    for (int r = 0; r < kRows; ++r) sums[r] = MulAdd(W::Read(w + r * a.stride + k), v, sums[r]);
  }
  if (k < a.size) {  // behind x may stand anything
    typename X::T rest[16] = {};
    for (int64_t i = k; i < a.size; ++i) rest[i - k] = x[i];
    const Vec v = X::Read(rest);
    for (int r = 0; r < kRows; ++r) sums[r] = MulAdd(W::Read(w + r * a.stride + k), v, sums[r]);
  }
  for (int r = 0; r < kRows; ++r) a.sums[first + r] = Sum(sums[r]);
}

template <typename X, typename W>
void ShrinkOf(const ShrinkArgs& a) {
  int row = 0;
  for (; row + 4 <= a.num_rows; row += 4) ShrinkRows<X, W, 4>(a, row);
  for (; row < a.num_rows; ++row) ShrinkRows<X, W, 1>(a, row);
}

template <typename X>
void ShrinkBy(const ShrinkArgs& a) {
  switch (a.element) {
    case Element::kF32:
      return ShrinkOf<X, F32Elements>(a);
    case Element::kF16:
      return ShrinkOf<X, F16Elements>(a);
    case Element::kBf16:
      return ShrinkOf<X, Bf16Elements>(a);
  }
}

void Shrink(const ShrinkArgs& a) {
  if (a.x_element == Element::kBf16)
    ShrinkBy<Bf16Elements>(a);
  else
    ShrinkBy<F32Elements>(a);
}

// Sixteen columns, `n` of which are there; the rank in ascending order.
template <typename W, int kGroups>
INFLIGHT_INLINE void ExpandColumns(const ExpandArgs& a, int column, int n) {
  const auto* b = static_cast<const typename W::T*>(a.b) + column;
  float* const sums = a.sums + column;
  Vec v[kGroups];
  for (int g = 0; g < kGroups; ++g) v[g] = LoadFirst(sums + 16 * g, kGroups == 1 ? n : 16);
  for (int j = 0; j < a.rank; ++j) {
    const Vec s = Set1(a.shrunk[j]);
    for (int g = 0; g < kGroups; ++g) v[g] = MulAdd(W::Read(b + j * a.stride + 16 * g), s, v[g]);
  }
  for (int g = 0; g < kGroups; ++g) StoreFirst(sums + 16 * g, v[g], kGroups == 1 ? n : 16);
}

template <typename W>
void ExpandOf(const ExpandArgs& a) {
  if (a.num_columns == kPanelColumns) return ExpandColumns<W, 4>(a, 0, 16);
  for (int column = 0; column < a.num_columns; column += 16) {
    const int left = a.num_columns - column;
    ExpandColumns<W, 1>(a, column, left < 16 ? left : 16);
  }
}

void Expand(const ExpandArgs& a) {
  switch (a.element) {
    case Element::kF32:
      return ExpandOf<F32Elements>(a);
    case Element::kF16:
      return ExpandOf<F16Elements>(a);
    case Element::kBf16:
      return ExpandOf<Bf16Elements>(a);
  }
}

}  // namespace
}  // namespace inflight::ops::cpu

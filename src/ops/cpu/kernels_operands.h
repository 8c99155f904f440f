// SPDX-License-Identifier: Apache-2.0
// The float operands of the register tile. Included once by each instruction set's translation
// unit, after its Vec, MulAddPairs and kPairTileRows; all names have internal linkage.
#pragma once

namespace inflight::ops::cpu {
namespace {

struct F32Operand {
  using X = float;
  using W = float;
  using WideX = Vec;
  using WideW = Vec;
  static constexpr int kStep = 1;    // elements of k that one step takes
  static constexpr int kStored = 1;  // elements of W that hold them, in one column
  static constexpr bool kHasHalfGroups = true;
  static constexpr int kNarrowSteps = 0;  // kernels_tile.h
  static constexpr bool kHasParts = false;
  static constexpr int kMaxTileRows = kTileRows;
  INFLIGHT_INLINE static WideX LoadX(const X* p) { return Set1(*p); }
  INFLIGHT_INLINE static WideW LoadW(const W* p) { return Load(p); }
  INFLIGHT_INLINE static WideW LoadWHalf(const W* p) { return LoadFirst(p, 8); }
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x) { return AddProduct(sum, w, x); }
};

struct F16Operand : F32Operand {  // but for the weight
  using W = uint16_t;
  INFLIGHT_INLINE static WideW LoadW(const W* p) { return LoadF16(p); }
  INFLIGHT_INLINE static WideW LoadWHalf(const W* p) { return LoadF16Half(p); }
};

struct WidenedBf16Operand;

struct Bf16Operand {
  using Widened = WidenedBf16Operand;
  using X = uint16_t;
  using W = uint16_t;
  using WideX = Pairs;
  using WideW = Pairs;
  static constexpr int kStep = 2;
  static constexpr int kStored = 2;
  static constexpr bool kHasHalfGroups = true;
  static constexpr int kNarrowSteps = 0;
  static constexpr bool kHasParts = kHasFewRegisters;
  static constexpr int kMaxTileRows = kPairTileRows;
  using UnalignedPair [[gnu::aligned(1), gnu::may_alias]] = uint32_t;
  INFLIGHT_INLINE static WideX LoadX(const X* p) {
    return SetPairs(*reinterpret_cast<const UnalignedPair*>(p));
  }
  INFLIGHT_INLINE static WideW LoadW(const W* p) { return LoadPairs(p); }
  INFLIGHT_INLINE static WideW LoadWHalf(const W* p) { return LoadPairsHalf(p); }
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x) {
    return MulAddPairs(sum, w, x);
  }
  template <int kIndex>
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x, StepPart<kIndex>) {
    return kIndex == 0 ? AddProduct(sum, EvenOfPairs(w), EvenOfPairs(x))
                       : AddProduct(sum, OddOfPairs(w), OddOfPairs(x));
  }
};

// The same with the pairs of x as float32, which many columns share.
struct WidenedBf16Operand : Bf16Operand {
  using X = float;
  struct WideX {
    Vec even, odd;
  };
  INFLIGHT_INLINE static WideX LoadX(const X* p) { return {Set1(p[0]), Set1(p[1])}; }
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x) {
    return Accumulate(Accumulate(sum, w, x, StepPart<0>()), w, x, StepPart<1>());
  }
  template <int kIndex>
  INFLIGHT_INLINE static Vec Accumulate(Vec sum, WideW w, WideX x, StepPart<kIndex>) {
    return kIndex == 0 ? AddProduct(sum, EvenOfPairs(w), x.even)
                       : AddProduct(sum, OddOfPairs(w), x.odd);
  }
};

}  // namespace
}  // namespace inflight::ops::cpu

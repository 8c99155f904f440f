// SPDX-License-Identifier: Apache-2.0
// float4 (e2m1) weights times int8 activations, exact in int32. Included once by each translation
// unit that has MulAddNibbles, after kernels_int4.h; all names have internal linkage.
//
// Twice the elements are the integers -12 .. 12. A table turns their codes into these plus 12, an
// unsigned operand whose products of bytes, two of 24 * 127 and two more, stay within 16 bits. 12
// times the group's sum comes off again.
#pragma once

namespace inflight::ops::cpu {
namespace {

constexpr int kFp4Offset = 12;

struct F4Operand : I4Operand {
  static constexpr bool kHasExponents = true;
  static constexpr int kNarrowSteps = kNarrowProducts / (4 * 24 * 127);
  INFLIGHT_INLINE static WideW LoadW(const W* p) {
    alignas(16) static constexpr uint8_t kIntegers[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                          12, 11, 10, 9,  8,  6,  4,  0};
    return LookUp(LoadNibbles(p), kIntegers);
  }
};

void PanelFp4(const PanelArgs& a) { GroupedPanel<F4Operand, kFp4Offset>(a); }

}  // namespace
}  // namespace inflight::ops::cpu

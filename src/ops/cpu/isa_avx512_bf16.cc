// SPDX-License-Identifier: Apache-2.0
// Compiled with the flags of isa_avx512.cc and -mavx512bf16; includes nothing whose inline
// functions others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx512.h"

namespace inflight::ops::cpu {
namespace {

constexpr int kPairTileRows = kTileRows;

INFLIGHT_INLINE Vec MulAddPairs(Vec sum, Pairs w, Pairs x) {
#if defined(__clang__) && __clang_major__ < 17
  // clang 16 crashes on vectors of bfloat16 when it optimizes.
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  return sum;
#else
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
#endif
}

}  // namespace
}  // namespace inflight::ops::cpu

#include "ops/cpu/kernels_all.h"

namespace inflight::ops::cpu {

void AttendAvx512Bf16(const AttentionArgs& args) { Attend(args); }

constinit const KernelSet kAvx512Bf16 =
    KernelsWith("cpu/avx512_bf16", PanelInt8Vnni, PanelInt4Vnni, PanelFp4Vnni);

constinit const KernelSet kAmx = [] {
  KernelSet kernels = KernelsWith("cpu/amx", PanelInt8Amx, PanelInt4Amx, PanelFp4Amx);
  kernels.panel_rows = kMaxPanelRows;
  kernels.panel_bf16 = PanelBf16Amx;
  kernels.panel_fp8 = PanelFp8Amx;
  kernels.attend = AttendAmx;
  return kernels;
}();

}  // namespace inflight::ops::cpu

// SPDX-License-Identifier: Apache-2.0
// Compiled with the flags of isa_avx512.cc and -mavx512bf16; includes nothing whose inline
// functions others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx512.h"

namespace inflight::ops::cpu {
namespace {

constexpr int kPairTileRows = kTileRows;

INFLIGHT_INLINE Vec MulAddPairs(Vec sum, Pairs w, Pairs x) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
}

}  // namespace
}  // namespace inflight::ops::cpu

#include "ops/cpu/kernels_all.h"

namespace inflight::ops::cpu {

constinit const KernelSet kAvx512Bf16 =
    KernelsWith("cpu/avx512_bf16", PanelInt8Vnni, PanelInt4Vnni);

}  // namespace inflight::ops::cpu

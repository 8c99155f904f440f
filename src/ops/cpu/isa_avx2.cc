// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2 -mfma -mf16c; includes nothing whose inline functions others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx2.h"

namespace inflight::ops::cpu {
namespace {

constexpr int kPairTileRows = kTileRows;

// The even k first, then the odd: the order of kAvx512 too.
INFLIGHT_INLINE Vec MulAddPairs(Vec sum, Pairs w, Pairs x) {
  return MulAdd(OddOfPairs(w), OddOfPairs(x), MulAdd(EvenOfPairs(w), EvenOfPairs(x), sum));
}

}  // namespace
}  // namespace inflight::ops::cpu

#include "ops/cpu/kernels_all.h"

namespace inflight::ops::cpu {

const KernelSet kAvx2 = {
    "cpu/avx2", Panel<F32Operand>, Panel<F16Operand>, Panel<Bf16Operand>, Finish, NormToken,
    Attend};

}  // namespace inflight::ops::cpu

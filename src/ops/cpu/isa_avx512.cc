// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx512f -mavx512bw -mavx512dq -mavx512vl; includes nothing whose inline functions
// others use.
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec_avx512.h"

namespace inflight::ops::cpu {
namespace {

// Twenty accumulators, the even and odd halves of four weights, and of one x.
constexpr int kPairTileRows = 5;

// The even k first, then the odd: the order of kAvx2 too.
INFLIGHT_INLINE Vec MulAddPairs(Vec sum, Pairs w, Pairs x) {
  return MulAdd(OddOfPairs(w), OddOfPairs(x), MulAdd(EvenOfPairs(w), EvenOfPairs(x), sum));
}

}  // namespace
}  // namespace inflight::ops::cpu

#include "ops/cpu/kernels_all.h"

namespace inflight::ops::cpu {

const KernelSet kAvx512 = {
    "cpu/avx512", Panel<F32Operand>, Panel<F16Operand>, Panel<Bf16Operand>, Finish, NormToken,
    Attend};

}  // namespace inflight::ops::cpu

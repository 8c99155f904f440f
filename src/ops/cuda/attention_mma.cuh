// SPDX-License-Identifier: Apache-2.0
// Instructions of compute capability 8.0 that the attention kernels, and those of adapters, are
// made of: asynchronous copies into shared memory, 8x8 matrices from there to registers, and
// products of 16x16 by 16x8.
//
// Fragments of mma.m16n8k16, lane = 4 g + j (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//
//   A [16][16]  a[0] row g, columns 2j 2j+1       a[1] row g+8, columns 2j 2j+1
//               a[2] row g, columns 2j+8 2j+9     a[3] row g+8, columns 2j+8 2j+9
//   B [16][8]   b[0] rows 2j 2j+1, column g       b[1] rows 2j+8 2j+9, column g
//   C [16][8]   c[0] c[1] row g, columns 2j 2j+1  c[2] c[3] row g+8, columns 2j 2j+1
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ops/cuda/fp8_halves.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/shared_access.cuh"

namespace inflight::ops::cuda {

// Binary orders by which a score may exceed the running maximum of its row.
inline constexpr float kSlack = 8;
// A maximum of no scores. Finite, since all scores of a row in a tile may be -inf.
inline constexpr float kLowest = -0x1p127F;

__device__ inline void CopyAsync16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
// Zeros instead, and no reading, where `is_used` is false.
__device__ inline void CopyAsync16(uint32_t to, const void* from, bool is_used) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_used ? 16 : 0)
               : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kNumPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNumPending) : "memory");
}

// Matrix i of 8 rows of 16 bytes lies at the addresses of lanes 8 i .. 8 i + 7.
__device__ inline void LoadMatrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void LoadTransposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline uint32_t TransposeMatrix(uint32_t r) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(r));
  return out;
}

template <typename T>
__device__ inline void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <typename T>
__device__ inline uint32_t Pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 v = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(v);
  } else {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(v);
  }
}

// Two bf16 as f16: what attention over an FP8 cache does its products in.
__device__ inline uint32_t HalvesOfBf16(uint32_t pair) {
  return Pack<__half>(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U));
}

// Adds 1 and returns what was there. What this thread has seen written is seen by whoever sees the
// sum; by way of a barrier, what its CTA has written.
__device__ inline int AddOneAcquireRelease(int32_t* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(z) = 1 - 2 / (1 + e^(2 z)) of z = scale / (2 log2(e)) times a score. Its error is below
// 2^-21.
__device__ inline float CappedScore(float score, float scale) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(1.0F + Exp2(__fmul_rn(score, scale))));
  return fmaf(-2.0F, reciprocal, 1.0F);
}

// Of a head's logit beside its keys (AttentionParams::sink_logits), `highest` the maximum in base
// 2: a term of the sum of weights.
__device__ inline float SinkWeight(float logit, float highest) {
  return Exp2(fmaf(logit, 1.4426950409F, -highest));
}

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous parts: barriers in shared memory, bulk copies of boxes of a matrix, wgmma.
// PTX ISA, "mbarrier", "cp.async.bulk.tensor", "Asynchronous warpgroup level matrix instructions".
// For code of sm_90a alone.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace inflight::ops::cuda {

// Whether a kernel that is empty where the code is not sm_90a's, and has barriers where it is, has
// a body in this program, for the GPU in use.
template <typename... Params>
bool HasBody(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes = {};
  const bool is_there = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
  cudaGetLastError();
  return is_there && attributes.sharedSizeBytes > 0;  // the barriers
}

// --- barriers ---

__device__ inline void InitBarrier(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}
// Makes barriers that this thread made known to bulk copies.
__device__ inline void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// One arrival; the phase ends when `num_bytes` have come, too.
__device__ inline void ArriveExpecting(uint32_t barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(num_bytes)
               : "memory");
}
__device__ inline bool HasEnded(uint32_t barrier, uint32_t parity) {
  uint32_t has_ended;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(has_ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return has_ended != 0;
}
// Until the phase of this parity has ended. One that never ends is a defect: the kernel fails then,
// after some seconds, rather than hang.
__device__ inline void Await(uint32_t barrier, uint32_t parity) {
  for (int tries = 0; !HasEnded(barrier, parity); ++tries)
    if (tries == 1 << 21) __trap();
}

// Of whole warps, as many threads as that; barrier 0 is __syncthreads'.
__device__ inline void SyncThreads(int barrier, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

// One arrival, once the copies that this thread began (CopyAsync16) have come.
__device__ inline void ArriveWhenCopied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// What was written to shared memory before, by this thread or by one whose arrival it has awaited,
// is seen by wgmma and bulk copies from here on.
__device__ inline void FenceAsync() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- registers ---

// Of each thread of this warpgroup, in multiples of 8, out of what the CTA was started with.
template <int kNum>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kNum));
}
template <int kNum>
__device__ inline void LeaveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kNum));
}

// --- copies ---

// A box of the matrix that `map` describes, whose first element is (column, row), to shared memory.
__device__ inline void CopyBox(uint32_t to, const CUtensorMap* map, int column, int row,
                               uint32_t barrier, uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(cache_policy)
      : "memory");
}

// --- wgmma ---

// Operands lie in rows of 128 bytes in the 128-byte swizzle, 8 rows per KiB, K along the row; a
// step along K is 32 bytes of address.
__device__ inline uint64_t OperandAt(uint32_t address) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 16 |
         (address & 0x3ffff) >> 4;
}

// An operand with K across the rows, 64 of its other dimension in each of 128 bytes: a step of 16
// along K is 2 KiB of address, the next 64 lie `next` bytes on.
__device__ inline uint64_t TransposedOperandAt(uint32_t address, int next) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | static_cast<uint64_t>(next >> 4) << 16 |
         (address & 0x3ffff) >> 4;
}

__device__ inline void FenceWgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void CommitWgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kNumPending>
__device__ inline void AwaitWgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNumPending) : "memory");
}
// Keeps the compiler from moving uses of registers that wgmma works on.
template <int kNum>
__device__ inline void Pin(float (&r)[kNum]) {
#pragma unroll
  for (int i = 0; i < kNum; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

#define INFLIGHT_F4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define INFLIGHT_F16(i) INFLIGHT_F4(i), INFLIGHT_F4(i + 4), INFLIGHT_F4(i + 8), INFLIGHT_F4(i + 12)
#define INFLIGHT_F32 INFLIGHT_F16(0), INFLIGHT_F16(16)
#define INFLIGHT_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define INFLIGHT_R32                                                              \
  INFLIGHT_R16                                                                    \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
  "%31"
#define INFLIGHT_WGMMA(shape, types, results, a, b, transposes, ...)                  \
  asm volatile(                                                                       \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                      \
      "wgmma.mma_async.sync.aligned." shape ".f32." types " {" results "}, " a ", " b \
      ", p, 1, 1" transposes ";\n}"                                                   \
      : __VA_ARGS__                                                                   \
      : "l"(a_rows), "l"(b_rows))
#define INFLIGHT_WGMMA_OF(n, results, a, b, ...)                                     \
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3>)                                    \
    INFLIGHT_WGMMA("m64n" n "k32", "e4m3.e4m3", results, a, b, "", __VA_ARGS__);     \
  else if constexpr (std::is_same_v<T, __half>)                                      \
    INFLIGHT_WGMMA("m64n" n "k16", "f16.f16", results, a, b, ", 0, 0", __VA_ARGS__); \
  else                                                                               \
    INFLIGHT_WGMMA("m64n" n "k16", "bf16.bf16", results, a, b, ", 0, 0", __VA_ARGS__)

#define INFLIGHT_F64 INFLIGHT_F16(0), INFLIGHT_F16(16), INFLIGHT_F16(32), INFLIGHT_F16(48)
#define INFLIGHT_R64                                                              \
  INFLIGHT_R32                                                                    \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "   \
  "%62, %63"
#define INFLIGHT_WGMMA_128(types, results, a, b, adds_at, transposes, ...)                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds_at                                      \
               ", 0;\n"                                                                         \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" results "}, " a ", " b \
               ", p, 1, 1" transposes ";\n}"                                                    \
               : INFLIGHT_F64                                                                   \
               : __VA_ARGS__, "l"(b_rows), "r"(static_cast<int>(adds)))

// c [64, 2 kNum] += a [64, 32 bytes] b [2 kNum, 32 bytes]^T. A thread holds of column 8 i + t % 4 *
// 2 + e, e < 2, row t / 32 * 16 + t % 32 / 4 in c[4 i + e] and the row 8 below in c[4 i + 2 + e].
template <typename T, int kNum>
__device__ inline void Wgmma(float (&c)[kNum], uint64_t a_rows, uint64_t b_rows) {
  static_assert(kNum == 16 || kNum == 32);
  if constexpr (kNum == 16) {
    INFLIGHT_WGMMA_OF("32", INFLIGHT_R16, "%16", "%17", INFLIGHT_F16(0));
  } else {
    INFLIGHT_WGMMA_OF("64", INFLIGHT_R32, "%32", "%33", INFLIGHT_F32);
  }
}

// Of 16-bit operands and 128 columns: c [64, 128] = or += a [64, 16] b [128, 16]^T,
template <typename T>
__device__ inline void Wgmma128(float (&c)[64], uint64_t a_rows, uint64_t b_rows, bool adds) {
  if constexpr (std::is_same_v<T, __half>)
    INFLIGHT_WGMMA_128("f16.f16", INFLIGHT_R64, "%64", "%65", "%66", ", 0, 0", "l"(a_rows));
  else
    INFLIGHT_WGMMA_128("bf16.bf16", INFLIGHT_R64, "%64", "%65", "%66", ", 0, 0", "l"(a_rows));
}
// and c [64, 128] += a b with a in registers, as mma.m16n8k16 has it of each warp's 16 rows, and b
// as TransposedOperandAt says.
template <typename T>
__device__ inline void Wgmma128(float (&c)[64], const uint32_t* a, uint64_t b_rows) {
  constexpr bool adds = true;
  if constexpr (std::is_same_v<T, __half>)
    INFLIGHT_WGMMA_128("f16.f16", INFLIGHT_R64, "{%64, %65, %66, %67}", "%68", "%69", ", 1",
                       "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
  else
    INFLIGHT_WGMMA_128("bf16.bf16", INFLIGHT_R64, "{%64, %65, %66, %67}", "%68", "%69", ", 1",
                       "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
}

// c [64, 2 kNum] = or += a [64, 16] b [2 kNum, 16]^T of 16-bit operands, a in registers as above
// and b as OperandAt says; places in c as of Wgmma.
#define INFLIGHT_WGMMA_R(n, types, results, a0, a1, a2, a3, b, adds_at, ...)                 \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds_at                                   \
               ", 0;\n"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." types " {" results "}, {" a0 \
               ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1, 0;\n}"                            \
               : __VA_ARGS__                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_rows),                    \
                 "r"(static_cast<int>(adds)))
#define INFLIGHT_WGMMA_R_OF(n, results, a0, a1, a2, a3, b, adds_at, ...)              \
  if constexpr (std::is_same_v<T, __half>)                                            \
    INFLIGHT_WGMMA_R(n, "f16.f16", results, a0, a1, a2, a3, b, adds_at, __VA_ARGS__); \
  else                                                                                \
    INFLIGHT_WGMMA_R(n, "bf16.bf16", results, a0, a1, a2, a3, b, adds_at, __VA_ARGS__)
#define INFLIGHT_R4 "%0, %1, %2, %3"
#define INFLIGHT_R8 "%0, %1, %2, %3, %4, %5, %6, %7"
template <typename T, int kNum>
__device__ inline void WgmmaOfRegisters(float (&c)[kNum], const uint32_t (&a)[4], uint64_t b_rows,
                                        bool adds) {
  static_assert(kNum == 4 || kNum == 8 || kNum == 16 || kNum == 32 || kNum == 64);
  if constexpr (kNum == 4) {
    INFLIGHT_WGMMA_R_OF("8", INFLIGHT_R4, "%4", "%5", "%6", "%7", "%8", "%9", INFLIGHT_F4(0));
  } else if constexpr (kNum == 8) {
    INFLIGHT_WGMMA_R_OF("16", INFLIGHT_R8, "%8", "%9", "%10", "%11", "%12", "%13", INFLIGHT_F4(0),
                        INFLIGHT_F4(4));
  } else if constexpr (kNum == 16) {
    INFLIGHT_WGMMA_R_OF("32", INFLIGHT_R16, "%16", "%17", "%18", "%19", "%20", "%21",
                        INFLIGHT_F16(0));
  } else if constexpr (kNum == 32) {
    INFLIGHT_WGMMA_R_OF("64", INFLIGHT_R32, "%32", "%33", "%34", "%35", "%36", "%37", INFLIGHT_F32);
  } else {
    INFLIGHT_WGMMA_R_OF("128", INFLIGHT_R64, "%64", "%65", "%66", "%67", "%68", "%69",
                        INFLIGHT_F64);
  }
}
#undef INFLIGHT_R8
#undef INFLIGHT_R4
#undef INFLIGHT_WGMMA_R_OF
#undef INFLIGHT_WGMMA_R

#undef INFLIGHT_WGMMA_128
#undef INFLIGHT_R64
#undef INFLIGHT_F64
#undef INFLIGHT_WGMMA_OF
#undef INFLIGHT_WGMMA
#undef INFLIGHT_R32
#undef INFLIGHT_R16
#undef INFLIGHT_F32
#undef INFLIGHT_F16
#undef INFLIGHT_F4

}  // namespace inflight::ops::cuda

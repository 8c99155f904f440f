// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous parts as the prefill kernel uses them: barriers in shared memory, bulk
// copies of boxes of a tensor, wgmma of 64 rows. PTX ISA, "mbarrier", "cp.async.bulk.tensor",
// "Asynchronous warpgroup level matrix instructions". For sm_90a alone.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "ops/cuda/attention_mma.cuh"

namespace inflight::ops::cuda {

// --- barriers ---

__device__ inline void InitBarrier(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}
__device__ inline void FenceBarrierInit() {
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
    if (tries == 1 << 22) __trap();
}

// Barrier `id` of 256 threads: 128 wait, the others only arrive.
__device__ inline void AwaitTurn(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ inline void GiveTurn(int id) {
  asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory");
}
__device__ inline void SyncWarpgroup(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

// Makes what this thread wrote to shared memory visible to wgmma and bulk copies.
__device__ inline void FenceForAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- copies ---

__device__ inline void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void CopyBox(uint32_t to, const CUtensorMap* map, int column, int row,
                               uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

template <int kNumRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kNumRegisters));
}
template <int kNumRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kNumRegisters));
}

// --- wgmma ---

// Operands lie in rows of 128 bytes in the 128-byte swizzle, 8 rows per KiB.
//
// Rows along the result's rows or columns, 64 elements of the summed dimension each; a step of 16
// elements along it is 32 bytes of address.
__device__ inline uint64_t AlongSum(uint32_t address) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 16 |
         (address & 0x3ffff) >> 4;
}
// Rows along the summed dimension, 64 columns of the result each; the next 64 columns lie
// `column_bytes` further on. A step of 16 along the sum is 2 KiB of address.
__device__ inline uint64_t AcrossSum(uint32_t address, uint32_t column_bytes) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{column_bytes >> 4} << 16 |
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

// The result of 64 rows: a thread holds of column 8 i + t % 4 * 2 + c, c < 2, row t / 32 * 16 + t %
// 32 / 4 in c[4 i + c] and the row 8 below in c[4 i + 2 + c].
#define INFLIGHT_F4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define INFLIGHT_F16(i) INFLIGHT_F4(i), INFLIGHT_F4(i + 4), INFLIGHT_F4(i + 8), INFLIGHT_F4(i + 12)
#define INFLIGHT_F32(i) INFLIGHT_F16(i), INFLIGHT_F16(i + 16)
#define INFLIGHT_F64(i) INFLIGHT_F32(i), INFLIGHT_F32(i + 32)
#define INFLIGHT_F128(i) INFLIGHT_F64(i), INFLIGHT_F64(i + 64)
#define INFLIGHT_R32                                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define INFLIGHT_R64                                                                             \
  INFLIGHT_R32                                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define INFLIGHT_R128                                                                            \
  INFLIGHT_R64                                                                                   \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "   \
  "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, "   \
  "%115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define INFLIGHT_SS(n, type, results, a, b, flag, ...)                                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " flag                                            \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" results "}, " a \
               ", " b ", p, 1, 1, 0, 0;\n}"                                                        \
               : __VA_ARGS__                                                                       \
               : "l"(a_rows), "l"(b_rows), "r"(is_added ? 1 : 0))

// c [64, 2 kNum] (+)= a [64, 16] b [2 kNum, 16]^T, both AlongSum.
template <typename T, int kNum>
__device__ inline void Wgmma(float (&c)[kNum], uint64_t a_rows, uint64_t b_rows, bool is_added) {
  static_assert(kNum == 32 || kNum == 64);
  if constexpr (kNum == 64 && std::is_same_v<T, __half>)
    INFLIGHT_SS("128", "f16", INFLIGHT_R64, "%64", "%65", "%66", INFLIGHT_F64(0));
  else if constexpr (kNum == 64)
    INFLIGHT_SS("128", "bf16", INFLIGHT_R64, "%64", "%65", "%66", INFLIGHT_F64(0));
  else if constexpr (std::is_same_v<T, __half>)
    INFLIGHT_SS("64", "f16", INFLIGHT_R32, "%32", "%33", "%34", INFLIGHT_F32(0));
  else
    INFLIGHT_SS("64", "bf16", INFLIGHT_R32, "%32", "%33", "%34", INFLIGHT_F32(0));
}

#define INFLIGHT_RS(n, type, results, rows, columns, ...)                                     \
  asm volatile(                                                                               \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" results "}, {" rows \
      "}, " columns ", p, 1, 1, 1;\n}"                                                        \
      : __VA_ARGS__                                                                           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_rows))

// c [64, 2 kNum] += a [64, 16] b [16, 2 kNum]: a as the fragment of mma.m16n8k16
// (attention_mma.cuh), 16 rows a warp; b AcrossSum.
template <typename T, int kNum>
__device__ inline void WgmmaFromRegisters(float (&c)[kNum], const uint32_t* a, uint64_t b_rows) {
  static_assert(kNum == 32 || kNum == 64 || kNum == 128);
  if constexpr (kNum == 32 && std::is_same_v<T, __half>)
    INFLIGHT_RS("64", "f16", INFLIGHT_R32, "%32, %33, %34, %35", "%36", INFLIGHT_F32(0));
  else if constexpr (kNum == 32)
    INFLIGHT_RS("64", "bf16", INFLIGHT_R32, "%32, %33, %34, %35", "%36", INFLIGHT_F32(0));
  else if constexpr (kNum == 64 && std::is_same_v<T, __half>)
    INFLIGHT_RS("128", "f16", INFLIGHT_R64, "%64, %65, %66, %67", "%68", INFLIGHT_F64(0));
  else if constexpr (kNum == 64)
    INFLIGHT_RS("128", "bf16", INFLIGHT_R64, "%64, %65, %66, %67", "%68", INFLIGHT_F64(0));
  else if constexpr (std::is_same_v<T, __half>)
    INFLIGHT_RS("256", "f16", INFLIGHT_R128, "%128, %129, %130, %131", "%132", INFLIGHT_F128(0));
  else
    INFLIGHT_RS("256", "bf16", INFLIGHT_R128, "%128, %129, %130, %131", "%132", INFLIGHT_F128(0));
}

#undef INFLIGHT_RS
#undef INFLIGHT_SS
#undef INFLIGHT_R128
#undef INFLIGHT_R64
#undef INFLIGHT_R32
#undef INFLIGHT_F128
#undef INFLIGHT_F64
#undef INFLIGHT_F32
#undef INFLIGHT_F16
#undef INFLIGHT_F4

}  // namespace inflight::ops::cuda

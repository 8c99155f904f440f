// SPDX-License-Identifier: Apache-2.0
// What the streaming kernels of few tokens share: copies that a lane keeps under way, the tensor
// core's instruction, and the place of a finished sum.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ops/cuda/store_product.cuh"

namespace inflight::ops::cuda {

// 16 bytes to shared memory; zeros where not `is_inside`.
__device__ inline void CopyAsync(uint32_t to, const uint8_t* from, bool is_inside,
                                 uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
      "l"(from), "r"(is_inside ? 16 : 0), "l"(policy)
      : "memory");
}

// The same address, of which the compiler does not know that the warp shares a part: ptxas 13.0
// makes an illegal instruction of a copy with a cache policy to an address in a uniform register.
__device__ inline uint32_t PerLane(uint32_t address) {
  return __shfl_sync(0xffffffff, address, static_cast<int>(threadIdx.x) % 32);
}

__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ inline void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Until at most `pending` groups of this thread's copies are under way.
__device__ inline void AwaitCopies(int pending) {
  switch (pending) {
    case 1:
      return AwaitCopies<1>();
    case 2:
      return AwaitCopies<2>();
    case 3:
      return AwaitCopies<3>();
    case 4:
      return AwaitCopies<4>();
    case 5:
      return AwaitCopies<5>();
    case 6:
      return AwaitCopies<6>();
    default:
      return AwaitCopies<7>();
  }
}

// sum += a b: a of 16 rows and 16 k, b of 16 k and 8 tokens.
template <typename T>
__device__ inline void Mma(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

}  // namespace inflight::ops::cuda

// SPDX-License-Identifier: Apache-2.0
// The CTAs of one thread block cluster: who they are, how they wait for each other, and how they
// reach each other's shared memory. Code for GPUs before compute capability 9.0 has clusters of
// one.
#pragma once

#include <cstdint>

namespace inflight::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ inline int ClusterSize() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
}

__device__ inline int ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// A barrier of all threads of the cluster that have not ended, in two halves. What was written
// before the first, to any memory, can be read after the second.
__device__ inline void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ inline void ClusterWait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Where the CTA `rank` has what `shared` points to in this CTA's shared memory. That CTA must have
// begun, and must not have ended when it is used.
template <typename T>
__device__ T* Peer(T* shared, int rank) {
  T* peer;
  asm("mapa.u64 %0, %1, %2;" : "=l"(peer) : "l"(shared), "r"(rank));
  return peer;
}

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// By one thread: starts a copy of `num_bytes`, a multiple of 16, between multiples of 16. Others
// may wait for it once they have synchronized with this thread. Once for a barrier.
__device__ inline void StartBulkLoad(void* shared, const void* global, uint32_t num_bytes,
                                     uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(num_bytes)
      : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(num_bytes), "r"(SharedAddress(barrier))
      : "memory");
}
__device__ inline void WaitForBulkLoad(uint64_t* barrier) {
  uint32_t is_done = 0;
  while (is_done == 0)
    asm volatile(
        "{ .reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], 0;\n"
        "selp.u32 %0, 1, 0, done; }"
        : "=r"(is_done)
        : "r"(SharedAddress(barrier))
        : "memory");
}

#else

__device__ inline int ClusterSize() { return 1; }
__device__ inline int ClusterRank() { return 0; }
__device__ inline void ClusterArrive() {}
__device__ inline void ClusterWait() { __syncthreads(); }
template <typename T>
__device__ T* Peer(T* shared, int) {
  return shared;
}
__device__ inline void StartBulkLoad(void*, const void*, uint32_t, uint64_t*) { __trap(); }
__device__ inline void WaitForBulkLoad(uint64_t*) {}

#endif

__device__ inline void ClusterSync() {
  ClusterArrive();
  ClusterWait();
}

}  // namespace inflight::cuda

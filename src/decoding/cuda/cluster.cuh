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

#else

__device__ inline int ClusterSize() { return 1; }
__device__ inline int ClusterRank() { return 0; }
__device__ inline void ClusterArrive() {}
__device__ inline void ClusterWait() { __syncthreads(); }
template <typename T>
__device__ T* Peer(T* shared, int) {
  return shared;
}

#endif

__device__ inline void ClusterSync() {
  ClusterArrive();
  ClusterWait();
}

}  // namespace inflight::cuda

// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a kernel's CTAs may be started while those of the kernel before it
// on the stream are still running, so that their start costs nothing.
//
// Every kernel launched by LaunchOverlapped waits for the kernel before it, and does so before it
// reads what kernels write and before it writes anything: whoever is behind it then waits for
// both. Earlier it may touch weights and its own shared memory. Loads through the read-only path
// (__ldg, __restrict__) may be moved before the wait by the compiler: only weights are read so.
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace inflight::ops::cuda {

// Waits until the kernels before have finished and their writes are visible.
__device__ inline void WaitForKernelBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the kernel behind start once all CTAs have said so, or have ended.
__device__ inline void LetKernelBehindStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// What a kernel that has nothing to do before its inputs are there begins with.
__device__ inline void BeginOverlapped() {
  LetKernelBehindStart();
  WaitForKernelBefore();
}

// Does nothing; tells what the program's device code was compiled for.
template <int>
__global__ void ProbeKernel() {}

// Whether kernels may overlap: the code that runs on the GPU in use was compiled for one that can,
// so that it waits (PTX for an earlier one has no such instructions). Asked of the runtime once.
// INFLIGHT_CUDA_OVERLAP=0, for debugging, says no.
inline bool CanOverlap() {
  static const bool can = [] {
    const char* const wanted = std::getenv("INFLIGHT_CUDA_OVERLAP");
    if (wanted != nullptr && std::string_view(wanted) == "0") return false;
    cudaFuncAttributes attributes = {};
    return cudaFuncGetAttributes(&attributes, ProbeKernel<0>) == cudaSuccess &&
           attributes.ptxVersion >= 90;
  }();
  return can;
}

// How kernels are launched that overlap where they can, alone or in clusters.
struct LaunchAttributes {
  cudaLaunchAttribute list[2] = {};
  unsigned count = 0;

  explicit LaunchAttributes(bool overlaps = CanOverlap(), unsigned cluster_size = 1) {
    if (cluster_size > 1) {
      list[count].id = cudaLaunchAttributeClusterDimension;
      list[count++].val.clusterDim = {cluster_size, 1, 1};
    }
    if (!overlaps) return;
    list[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    list[count++].val.programmaticStreamSerializationAllowed = 1;
  }
};

template <typename... Params, typename... Args>
cudaError_t LaunchOverlapped(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                             cudaStream_t stream, Args&&... args) {
  LaunchAttributes attributes;
  const cudaLaunchConfig_t config = {.gridDim = grid,
                                     .blockDim = block,
                                     .dynamicSmemBytes = shared_bytes,
                                     .stream = stream,
                                     .attrs = attributes.list,
                                     .numAttrs = attributes.count};
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...);
}

}  // namespace inflight::ops::cuda

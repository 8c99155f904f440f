// SPDX-License-Identifier: Apache-2.0
#include "counted_calls.h"

#include <cuda_runtime_api.h>

namespace inflight::gpu {
thread_local CountedCalls counted_calls;
}
using inflight::gpu::counted_calls;

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
#define COUNTED(name, parameters, arguments)        \
  extern "C" cudaError_t __real_##name parameters;  \
  extern "C" cudaError_t __wrap_##name parameters;  \
  extern "C" cudaError_t __wrap_##name parameters { \
    ++counted_calls.num_runtime_calls;              \
    counted_calls.last_runtime_call = #name;        \
    return __real_##name arguments;                 \
  }
COUNTED(cudaMalloc, (void** memory, size_t size), (memory, size))
COUNTED(cudaMallocAsync, (void** memory, size_t size, cudaStream_t stream), (memory, size, stream))
COUNTED(cudaHostAlloc, (void** memory, size_t size, unsigned flags), (memory, size, flags))
COUNTED(cudaMallocHost, (void** memory, size_t size), (memory, size))
COUNTED(cudaFree, (void* memory), (memory))
COUNTED(cudaFreeAsync, (void* memory, cudaStream_t stream), (memory, stream))
COUNTED(cudaFreeHost, (void* memory), (memory))
COUNTED(cudaDeviceSynchronize, (), ())
COUNTED(cudaStreamSynchronize, (cudaStream_t stream), (stream))
COUNTED(cudaEventSynchronize, (cudaEvent_t event), (event))
COUNTED(cudaMemcpy, (void* to, const void* from, size_t size, cudaMemcpyKind kind),
        (to, from, size, kind))
COUNTED(cudaMemset, (void* memory, int value, size_t size), (memory, value, size))
#undef COUNTED

extern "C" {
cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long);
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long);
cublasStatus_t __real_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatmulPreference_t, int,
                                                     cublasLtMatmulHeuristicResult_t*, int*);
cublasStatus_t __wrap_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatmulPreference_t, int,
                                                     cublasLtMatmulHeuristicResult_t*, int*);
cublasStatus_t __real_cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*,
                                     const void*, cublasLtMatrixLayout_t, const void*,
                                     cublasLtMatrixLayout_t, const void*, const void*,
                                     cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                                     const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t);
cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*,
                                     const void*, cublasLtMatrixLayout_t, const void*,
                                     cublasLtMatrixLayout_t, const void*, const void*,
                                     cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                                     const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t);
}

cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                        unsigned long long flags) {
  ++counted_calls.num_graphs;
  return __real_cudaGraphInstantiate(executable, graph, flags);
}

cublasStatus_t __wrap_cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int num_requested,
    cublasLtMatmulHeuristicResult_t* results, int* num_found) {
  ++counted_calls.num_heuristics;
  return __real_cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, d, preference,
                                               num_requested, results, num_found);
}

cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                     const void* alpha, const void* a,
                                     cublasLtMatrixLayout_t a_layout, const void* b,
                                     cublasLtMatrixLayout_t b_layout, const void* beta,
                                     const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                     cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                                     size_t workspace_bytes, cudaStream_t stream) {
  if (counted_calls.keeps_algorithms) counted_calls.algorithms.push_back(*algorithm);
  return __real_cublasLtMatmul(handle, operation, alpha, a, a_layout, b, b_layout, beta, c,
                               c_layout, d, d_layout, algorithm, workspace, workspace_bytes,
                               stream);
}
// NOLINTEND(bugprone-reserved-identifier)

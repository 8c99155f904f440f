// SPDX-License-Identifier: Apache-2.0
// What the calling thread has asked of the CUDA runtime and of cuBLASLt: calls that the linker's
// --wrap sends here count (CMakeLists.txt).
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <vector>

namespace inflight::gpu {

struct CountedCalls {
  int64_t num_runtime_calls = 0;  // that take or give back memory, or wait
  const char* last_runtime_call = "none";
  int64_t num_graphs = 0;      // instantiated
  int64_t num_heuristics = 0;  // times that the library was asked for algorithms
  bool keeps_algorithms = false;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // of products, where they are kept
};
extern thread_local CountedCalls counted_calls;

}  // namespace inflight::gpu

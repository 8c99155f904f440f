// SPDX-License-Identifier: Apache-2.0
// Functions of the NVIDIA driver's library, which the runtime has loaded: the program is not linked
// with it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "inflight/status.h"

namespace inflight::cuda {

// `name` in the version of CUDA 12.0, as a function of the type Function.
template <typename Function>
Result<Function*> DriverFunction(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess)
    return Internal(std::string("the NVIDIA driver has no ") + name);
  return reinterpret_cast<Function*>(entry);
}

}  // namespace inflight::cuda

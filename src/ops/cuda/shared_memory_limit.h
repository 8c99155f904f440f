// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/cuda_status.h"

namespace inflight::ops::cuda {

// Lets a kernel take more than 48 KiB of shared memory, once per GPU. One static object per kernel.
class SharedMemoryLimit {
 public:
  template <typename Kernel>
  Status Raise(Kernel* kernel, int num_bytes, CudaStream& stream) {
    const int device = stream.gpu().index;
    const uint64_t bit = uint64_t{1} << (device % 64);
    if ((done_.load(std::memory_order_relaxed) & bit) != 0) return Status::Ok();
    RETURN_IF_ERROR(inflight::cuda::ToStatus(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, num_bytes),
        "shared memory of a kernel"));
    done_.fetch_or(bit, std::memory_order_relaxed);
    return Status::Ok();
  }

 private:
  std::atomic<uint64_t> done_{0};  // bit i: GPU i
};

}  // namespace inflight::ops::cuda

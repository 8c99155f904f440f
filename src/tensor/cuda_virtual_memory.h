// SPDX-License-Identifier: Apache-2.0
// Addresses of a GPU apart from the pages behind them, by the NVIDIA driver's virtual memory
// management. Programs built without CUDA link cuda_virtual_memory_absent.cc, where nobody has a
// GPU to pass.
//
// Threads: all are thread-safe. Each sets the calling thread's current device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inflight/status.h"

namespace inflight::cuda {

// What sizes below are multiples of. kUnimplemented where the GPU or its driver has none.
Result<size_t> GranuleBytes(int device);

Result<void*> ReserveAddresses(int device, size_t num_bytes);  // without pages
void FreeAddresses(int device, void* data, size_t num_bytes) noexcept;

// Pages behind the whole range, zeroed, for this GPU alone; gives their handle.
// kResourceExhausted where the GPU has not so many left.
Result<uint64_t> MapPages(int device, void* data, size_t num_bytes);
// Once all kernels and copies that touch the range have ended.
Status UnmapPages(int device, void* data, size_t num_bytes, uint64_t handle);

}  // namespace inflight::cuda

// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_virtual_memory.cc in builds without CUDA: no device was ever probed.
#include "base/check.h"
#include "tensor/cuda_virtual_memory.h"

namespace inflight::cuda {

Result<size_t> GranuleBytes(int) { CHECK(false); }
Result<void*> ReserveAddresses(int, size_t) { CHECK(false); }
void FreeAddresses(int, void*, size_t) noexcept {}
Result<uint64_t> MapPages(int, void*, size_t) { CHECK(false); }
Status UnmapPages(int, void*, size_t, uint64_t) { CHECK(false); }

}  // namespace inflight::cuda

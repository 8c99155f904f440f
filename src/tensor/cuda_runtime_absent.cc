// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_runtime_calls.cc in builds without CUDA.
#include "base/check.h"
#include "tensor/cuda_runtime_calls.h"

namespace inflight::cuda {

Result<DeviceProperties> Probe(int) {
  return Unimplemented(
      "device: got cuda, this program was built without CUDA; use cpu, or build it with "
      "-DINFLIGHT_CUDA=ON");
}

bool HasRuntime() { return false; }

// No device was ever probed, so nobody can have one to pass.
Result<uint64_t> FreeBytes(int) { CHECK(false); }
Result<void*> Allocate(int, size_t) { CHECK(false); }
void Free(int, void*) noexcept {}
Result<void*> AllocatePinned(int, size_t) { CHECK(false); }
void FreePinned(void*) noexcept {}
Status Pin(int, void*, size_t) { CHECK(false); }
void Unpin(void*) noexcept {}
Status Wait(int) { CHECK(false); }
Status Copy(int, void*, const void*, size_t) { CHECK(false); }

}  // namespace inflight::cuda

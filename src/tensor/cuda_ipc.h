// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that another process allocated and shares by a handle (cudaIpcMemHandle_t).
// Programs built without CUDA link cuda_ipc_absent.cc, where nothing can be opened.
//
// Threads: all are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "inflight/status.h"

namespace inflight::cuda {

inline constexpr size_t kIpcHandleBytes = 64;

struct IpcMemory {
  int device = 0;
  std::byte* data = nullptr;  // on the device: only Copy (cuda_runtime_calls.h) may touch it
  uint64_t byte_size = 0;     // to the end of what the driver lends
};

bool HasIpc();  // whether this build can open handles

// Each open is followed by a close. kInvalidArgument with the runtime's reason: no such device, a
// handle of no memory or of memory of this process.
Result<IpcMemory> OpenIpc(int device, std::span<const std::byte, kIpcHandleBytes> handle);
void CloseIpc(const IpcMemory& memory) noexcept;

}  // namespace inflight::cuda

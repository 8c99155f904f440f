// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_ipc.cc in builds without CUDA.
#include "tensor/cuda_ipc.h"

namespace inflight::cuda {

bool HasIpc() { return false; }

Result<IpcMemory> OpenIpc(int, std::span<const std::byte, kIpcHandleBytes>) {
  return Unimplemented("this program was built without CUDA");
}

void CloseIpc(const IpcMemory&) noexcept {}

}  // namespace inflight::cuda

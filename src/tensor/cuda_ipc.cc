// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda_ipc.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "base/status_macros.h"
#include "tensor/cuda_driver.h"

namespace inflight::cuda {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == kIpcHandleBytes);

Status Refused(const char* what, cudaError_t error) {
  cudaGetLastError();  // of the client's making: later calls shall not find it
  return InvalidArgument(std::string("failed to ") + what + ": " + cudaGetErrorString(error));
}

// The runtime does not say how long an allocation is; the driver does.
Result<uint64_t> BytesBehind(const void* data) {
  ASSIGN_OR_RETURN(const auto get_range,
                   DriverFunction<decltype(cuMemGetAddressRange)>("cuMemGetAddressRange"));
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  CUdeviceptr base = 0;
  size_t size = 0;
  if (get_range(&base, &size, address) != CUDA_SUCCESS || address < base || address - base > size)
    return Internal("the NVIDIA driver does not know the allocation of a CUDA IPC handle");
  return uint64_t{size - (address - base)};
}

}  // namespace

bool HasIpc() { return true; }

Result<IpcMemory> OpenIpc(int device, std::span<const std::byte, kIpcHandleBytes> handle) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess)
    return Refused("use the GPU", error);
  cudaIpcMemHandle_t raw;
  std::memcpy(&raw, handle.data(), sizeof raw);
  void* data = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&data, raw, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) return Refused("open CUDA IPC handle", error);
  IpcMemory memory{.device = device, .data = static_cast<std::byte*>(data)};
  const auto byte_size = BytesBehind(data);
  if (!byte_size.ok()) {
    CloseIpc(memory);
    return byte_size.status();
  }
  memory.byte_size = *byte_size;
  return memory;
}

void CloseIpc(const IpcMemory& memory) noexcept {
  cudaSetDevice(memory.device);
  cudaIpcCloseMemHandle(memory.data);
}

}  // namespace inflight::cuda

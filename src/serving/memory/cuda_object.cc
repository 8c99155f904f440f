// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "serving/memory/shared_object.h"
#include "tensor/cuda_ipc.h"
#include "tensor/cuda_runtime_calls.h"

namespace inflight::serving {
namespace {

Status CannotBeCopied(const Status& status) {
  return status.ok() ? status : Internal("cannot be copied: " + status.message());
}

class CudaObject final : public SharedObject {
 public:
  explicit CudaObject(cuda::IpcMemory memory) : memory_(memory) {}
  ~CudaObject() override { cuda::CloseIpc(memory_); }
  CudaObject(const CudaObject&) = delete;
  CudaObject& operator=(const CudaObject&) = delete;

  uint64_t byte_size() const override { return memory_.byte_size; }
  Status Read(uint64_t offset, std::span<std::byte> bytes) const override {
    return CannotBeCopied(
        cuda::Copy(memory_.device, bytes.data(), memory_.data + offset, bytes.size()));
  }
  Status Write(uint64_t offset, std::span<const std::byte> bytes) const override {
    return CannotBeCopied(
        cuda::Copy(memory_.device, memory_.data + offset, bytes.data(), bytes.size()));
  }

 private:
  const cuda::IpcMemory memory_;
};

OpenedObject Open(int64_t device, std::string_view handle) {
  if (handle.size() != cuda::kIpcHandleBytes) {
    return InvalidArgument("raw_handle: got " + std::to_string(handle.size()) +
                           " bytes, a cudaIpcMemHandle_t has " +
                           std::to_string(cuda::kIpcHandleBytes));
  }
  if (device < 0 || device > std::numeric_limits<int>::max()) {
    return InvalidArgument("device_id: got " + std::to_string(device) +
                           ", needs the number of a GPU");
  }
  const auto bytes =
      std::as_bytes(std::span<const char, cuda::kIpcHandleBytes>(handle.data(), handle.size()));
  ASSIGN_OR_RETURN(const cuda::IpcMemory memory, cuda::OpenIpc(static_cast<int>(device), bytes));
  return std::shared_ptr<const SharedObject>(std::make_shared<CudaObject>(memory));
}

}  // namespace

OpenCudaObject CudaObjects() { return cuda::HasIpc() ? OpenCudaObject(Open) : nullptr; }

}  // namespace inflight::serving

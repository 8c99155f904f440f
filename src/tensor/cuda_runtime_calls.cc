// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda_runtime_calls.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/status_macros.h"
#include "tensor/cuda_status.h"
#include "tensor/kernel_code.h"

namespace inflight::cuda {
namespace {

std::string VersionName(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return Status::Ok();
  const std::string message =
      fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation) return OutOfMemory(message);
  return Internal(message);
}

Status CheckCapability(const DeviceProperties& gpu, bool has_kernel_code) {
  const std::string which = fmt::format("device: cuda:{} is a {} of compute capability {}.{}, ",
                                        gpu.index, gpu.name, gpu.compute_major, gpu.compute_minor);
  if (gpu.compute_capability() < 80) return FailedPrecondition(which + "at least 8.0 is needed");
  if (has_kernel_code) return Status::Ok();
  return FailedPrecondition(which +
                            fmt::format("for which this program holds no code; build it with "
                                        "-DCMAKE_CUDA_ARCHITECTURES={}, or use --device cpu",
                                        gpu.compute_capability()));
}

Result<DeviceProperties> Probe(int index) {
  DeviceProperties properties;
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  cudaDriverGetVersion(&properties.driver_version);
  cudaRuntimeGetVersion(&properties.runtime_version);
  if (found == cudaErrorInsufficientDriver && properties.driver_version > 0)
    return Unavailable(fmt::format(
        "device: got cuda, the NVIDIA driver supports CUDA {} and this program needs {}; update "
        "the driver, or use --device cpu",
        VersionName(properties.driver_version), VersionName(properties.runtime_version)));
  if (found != cudaSuccess || count == 0)
    return Unavailable(fmt::format(
        "device: got cuda, this machine has no usable NVIDIA GPU ({}); use --device cpu",
        found == cudaErrorInsufficientDriver ? "no NVIDIA driver was found"
        : found == cudaSuccess               ? "none was found"
                                             : cudaGetErrorString(found)));
  if (index < 0 || index >= count)
    return InvalidArgument(fmt::format("device: got cuda:{}, this machine has {} GPU{}: 0 to {}",
                                       index, count, count == 1 ? "" : "s", count - 1));
  const cudaError_t entered = cudaSetDevice(index);
  if (entered == cudaErrorMemoryAllocation)
    return OutOfMemory(fmt::format(
        "device: got cuda:{}, whose memory is full: a process takes half a GiB before its first "
        "model; free memory, choose another GPU (--device cuda:N), or use --device cpu",
        index));
  RETURN_IF_ERROR(ToStatus(entered, "cannot use the GPU"));
  cudaDeviceProp found_properties;
  RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&found_properties, index), "cannot query the GPU"));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(
      ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cannot query the GPU's memory"));
  properties.index = index;
  properties.name = found_properties.name;
  properties.compute_major = found_properties.major;
  properties.compute_minor = found_properties.minor;
  properties.num_sms = found_properties.multiProcessorCount;
  properties.free_bytes = free_bytes;
  properties.total_bytes = total_bytes;
  properties.l2_bytes = static_cast<uint64_t>(found_properties.l2CacheSize);
  properties.max_shared_bytes_per_block = found_properties.sharedMemPerBlockOptin;
  RETURN_IF_ERROR(CheckCapability(properties, HasKernelCode()));
  return properties;
}

Result<uint64_t> FreeBytes(int device) {
  cudaSetDevice(device);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(
      ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cannot query the GPU's memory"));
  return uint64_t{free_bytes};
}

Result<void*> Allocate(int device, size_t num_bytes) {
  cudaSetDevice(device);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, num_bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // a failed allocation is not sticky
    return ToStatus(error, fmt::format("cannot allocate {} bytes of GPU memory", num_bytes));
  }
  // Waits: streams of executors do not wait for the default stream, where this runs.
  cudaError_t cleared = cudaMemset(data, 0, num_bytes);
  if (cleared == cudaSuccess) cleared = cudaStreamSynchronize(cudaStreamLegacy);
  const Status zeroed = ToStatus(cleared, "cannot clear GPU memory");
  if (!zeroed.ok()) {
    cudaFree(data);
    return zeroed;
  }
  return data;
}

void Free(int device, void* data) noexcept {
  cudaSetDevice(device);
  cudaFree(data);
}

Result<void*> AllocatePinned(int device, size_t num_bytes) {
  cudaSetDevice(device);
  void* data = nullptr;
  RETURN_IF_ERROR(
      ToStatus(cudaHostAlloc(&data, num_bytes, cudaHostAllocMapped | cudaHostAllocPortable),
               fmt::format("cannot pin {} bytes of host memory", num_bytes)));
  return data;
}

void FreePinned(void* data) noexcept { cudaFreeHost(data); }

Status Pin(int device, void* data, size_t num_bytes) {
  cudaSetDevice(device);
  const cudaError_t pinned =
      cudaHostRegister(data, num_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (pinned != cudaSuccess) cudaGetLastError();  // a failed registration is not sticky
  RETURN_IF_ERROR(ToStatus(pinned, fmt::format("cannot pin {} bytes of host memory", num_bytes)));
  void* of_device = nullptr;
  const cudaError_t found = cudaHostGetDevicePointer(&of_device, data, 0);
  if (found == cudaSuccess && of_device == data) return Status::Ok();
  Unpin(data);
  return Internal("pinned host memory has another address on the GPU");
}

void Unpin(void* data) noexcept { cudaHostUnregister(data); }

bool HasRuntime() { return true; }

Status Copy(int device, void* target, const void* source, size_t num_bytes) {
  cudaSetDevice(device);
  cudaError_t copied = cudaMemcpy(target, source, num_bytes, cudaMemcpyDefault);
  // A copy from memory that is not pinned may return before its last bytes arrive.
  if (copied == cudaSuccess) copied = cudaStreamSynchronize(cudaStreamLegacy);
  return ToStatus(copied, "cannot copy to or from the GPU");
}

Status Wait(int device) {
  cudaSetDevice(device);
  return ToStatus(cudaDeviceSynchronize(), "waiting for the GPU");
}

}  // namespace inflight::cuda

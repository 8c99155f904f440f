// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda_virtual_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/status_macros.h"
#include "tensor/cuda_driver.h"
#include "tensor/cuda_status.h"

namespace inflight::cuda {
namespace {

// Found once; all of them or an error.
struct VirtualMemoryCalls {
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

Result<VirtualMemoryCalls> FindCalls() {
  VirtualMemoryCalls calls;
  ASSIGN_OR_RETURN(calls.attribute,
                   DriverFunction<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute"));
  ASSIGN_OR_RETURN(calls.granularity, DriverFunction<decltype(cuMemGetAllocationGranularity)>(
                                          "cuMemGetAllocationGranularity"));
  ASSIGN_OR_RETURN(calls.reserve,
                   DriverFunction<decltype(cuMemAddressReserve)>("cuMemAddressReserve"));
  ASSIGN_OR_RETURN(calls.free_addresses,
                   DriverFunction<decltype(cuMemAddressFree)>("cuMemAddressFree"));
  ASSIGN_OR_RETURN(calls.create, DriverFunction<decltype(cuMemCreate)>("cuMemCreate"));
  ASSIGN_OR_RETURN(calls.release, DriverFunction<decltype(cuMemRelease)>("cuMemRelease"));
  ASSIGN_OR_RETURN(calls.map, DriverFunction<decltype(cuMemMap)>("cuMemMap"));
  ASSIGN_OR_RETURN(calls.unmap, DriverFunction<decltype(cuMemUnmap)>("cuMemUnmap"));
  ASSIGN_OR_RETURN(calls.set_access, DriverFunction<decltype(cuMemSetAccess)>("cuMemSetAccess"));
  return calls;
}

Result<VirtualMemoryCalls> Calls(int device) {
  static const Result<VirtualMemoryCalls> found = FindCalls();
  cudaSetDevice(device);
  return found;
}

Status DriverStatus(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return Status::Ok();
  const std::string message =
      fmt::format("cannot {} (the NVIDIA driver's error {})", what, static_cast<int>(result));
  return result == CUDA_ERROR_OUT_OF_MEMORY ? OutOfMemory(message) : Internal(message);
}

CUmemLocation LocationOf(int device) {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUmemAllocationProp PagesOf(int device) {
  CUmemAllocationProp pages = {};
  pages.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  pages.location = LocationOf(device);
  return pages;
}

CUdeviceptr AddressOf(void* data) { return reinterpret_cast<CUdeviceptr>(data); }

Status ClearPages(void* data, size_t num_bytes) {
  RETURN_IF_ERROR(ToStatus(cudaMemset(data, 0, num_bytes), "cannot clear GPU memory"));
  return ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "cannot clear GPU memory");
}

}  // namespace

Result<size_t> GranuleBytes(int device) {
  const auto calls = Calls(device);
  int has_it = 0;
  if (!calls.ok() ||
      calls->attribute(&has_it, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) !=
          CUDA_SUCCESS ||
      has_it == 0)
    return Unimplemented(
        "enable_sleep_mode: this GPU, or its driver, has no virtual memory management; leave it "
        "out");
  const CUmemAllocationProp pages = PagesOf(device);
  size_t granule = 0;
  RETURN_IF_ERROR(
      DriverStatus(calls->granularity(&granule, &pages, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                   "find the size of pages"));
  return granule;
}

Result<void*> ReserveAddresses(int device, size_t num_bytes) {
  ASSIGN_OR_RETURN(const VirtualMemoryCalls calls, Calls(device));
  CUdeviceptr address = 0;
  RETURN_IF_ERROR(
      DriverStatus(calls.reserve(&address, num_bytes, 0, 0, 0), "reserve addresses of the GPU"));
  return reinterpret_cast<void*>(address);
}

void FreeAddresses(int device, void* data, size_t num_bytes) noexcept {
  const auto calls = Calls(device);
  if (calls.ok()) calls->free_addresses(AddressOf(data), num_bytes);
}

Result<uint64_t> MapPages(int device, void* data, size_t num_bytes) {
  ASSIGN_OR_RETURN(const VirtualMemoryCalls calls, Calls(device));
  const CUmemAllocationProp pages = PagesOf(device);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = calls.create(&handle, num_bytes, &pages, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY)
    return OutOfMemory(fmt::format("cannot allocate {} bytes of GPU memory", num_bytes));
  RETURN_IF_ERROR(DriverStatus(created, "allocate GPU memory"));
  Status mapped = DriverStatus(calls.map(AddressOf(data), num_bytes, 0, handle, 0), "map memory");
  if (!mapped.ok()) {
    calls.release(handle);
    return mapped;
  }
  CUmemAccessDesc access = {};
  access.location = LocationOf(device);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  mapped = DriverStatus(calls.set_access(AddressOf(data), num_bytes, &access, 1), "use memory");
  if (mapped.ok()) mapped = ClearPages(data, num_bytes);
  if (!mapped.ok()) {
    (void)UnmapPages(device, data, num_bytes, handle);
    return mapped;
  }
  return uint64_t{handle};
}

Status UnmapPages(int device, void* data, size_t num_bytes, uint64_t handle) {
  ASSIGN_OR_RETURN(const VirtualMemoryCalls calls, Calls(device));
  RETURN_IF_ERROR(DriverStatus(calls.unmap(AddressOf(data), num_bytes), "give memory back"));
  return DriverStatus(calls.release(handle), "give memory back");
}

}  // namespace inflight::cuda

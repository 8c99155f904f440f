// SPDX-License-Identifier: Apache-2.0
// The few calls of the CUDA runtime that devices and buffers need. Programs built without CUDA link
// cuda_runtime_absent.cc, where Probe says so and nothing else is ever called.
//
// Threads: all are thread-safe. Each sets the calling thread's current device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "inflight/status.h"

namespace inflight::cuda {

struct DeviceProperties {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  int compute_major = 0, compute_minor = 0;
  int num_sms = 0;
  int driver_version = 0, runtime_version = 0;  // 13000 = CUDA 13.0
  uint64_t free_bytes = 0, total_bytes = 0;     // now
  uint64_t l2_bytes = 0;
  uint64_t max_shared_bytes_per_block = 0;

  int compute_capability() const { return compute_major * 10 + compute_minor; }  // 90
};

// kFailedPrecondition on a GPU that no kernels are written for, or none compiled.
Status CheckCapability(const DeviceProperties& gpu, bool has_kernel_code);

// kUnavailable without a GPU or with a driver too old for this program, kInvalidArgument for an
// index that the machine does not have, kUnimplemented in builds without CUDA, kFailedPrecondition
// on a GPU that this program has no code for. Creates the device's context.
Result<DeviceProperties> Probe(int index);

Result<uint64_t> FreeBytes(int device);  // now, by any process

Result<void*> Allocate(int device, size_t num_bytes);  // zeroed; kResourceExhausted
void Free(int device, void* data) noexcept;
Result<void*> AllocatePinned(int device, size_t num_bytes);  // host memory, mapped to the device
void FreePinned(void* data) noexcept;
// Pins memory of this process that is there already, under its own address; whole pages.
Status Pin(int device, void* data, size_t num_bytes);
void Unpin(void* data) noexcept;

bool HasRuntime();  // false in builds without CUDA
// Between host and device in either direction; waits until it is done.
Status Copy(int device, void* target, const void* source, size_t num_bytes);
Status Wait(int device);  // until all that was enqueued is done

}  // namespace inflight::cuda

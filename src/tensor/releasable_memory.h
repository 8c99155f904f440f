// SPDX-License-Identifier: Apache-2.0
// Device memory that can be given back while its address stays: what was told the address, such as
// recorded steps of a GPU, is right again once the memory is taken back. By virtual memory: a range
// of addresses is reserved, and pages are mapped to it and unmapped.
//
// Units:   bytes. GPUs map whole granules of some MiB; the ledger has the bytes that were asked
// for. Threads: one at a time, while nothing reads or writes the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tensor/device.h"

namespace inflight {

class ReleasableMemory {
 public:
  // Zeroed, 64-byte aligned, booked in the device's ledger under `name`, and there. The device
  // outlives it. kResourceExhausted as of Buffer::Allocate; kUnimplemented on a GPU whose driver
  // has no virtual memory.
  static Result<std::shared_ptr<ReleasableMemory>> Allocate(Device& device, std::string name,
                                                            size_t num_bytes);
  ~ReleasableMemory();
  ReleasableMemory(const ReleasableMemory&) = delete;
  ReleasableMemory& operator=(const ReleasableMemory&) = delete;

  std::byte* data() const { return data_; }  // the same for ever
  size_t size() const { return size_; }
  Device& device() const { return device_; }
  bool is_there() const { return is_there_; }

  // Gives the pages back to the device; what they held is lost, and whoever touches the address
  // faults.
  Status Release();
  // Takes pages again, zeroed. kResourceExhausted where somebody else has them by now.
  Status TakeBack();

 private:
  ReleasableMemory(Device& device, std::string name, size_t num_bytes)
      : device_(device), name_(std::move(name)), size_(num_bytes) {}
  Status Reserve();
  Status Map();
  Status Unmap();

  Device& device_;
  const std::string name_;
  const size_t size_;
  std::byte* data_ = nullptr;
  size_t mapped_bytes_ = 0;  // size_ in whole granules
  uint64_t handle_ = 0;      // of a GPU's pages
  MemoryShare share_;
  bool is_there_ = false;
};

}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
// Owned device memory: 64-byte aligned, zeroed, booked in the device's ledger under a name.
#pragma once

#include <cstddef>
#include <string>

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace inflight {

class Buffer {
 public:
  // On the CPU large buffers are anonymous mappings advised to 2 MiB pages.
  static Result<Buffer> Allocate(Device& device, std::string name, size_t num_bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  TensorView View(DType dtype, Shape shape, size_t offset_bytes = 0) const;  // CHECKs that it fits

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  MemoryShare share_;
};

}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
// Owned device memory: 64-byte aligned, zeroed, booked in the device's ledger under a name. And
// host memory that a GPU reads and writes in place.
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
  int gpu_ = -1;  // whose memory this is; -1 = host memory
};

// Host memory that stays where it is: the GPU copies from and to it at full speed, and its kernels
// can address it. Zeroed.
class PinnedBuffer {
 public:
  static Result<PinnedBuffer> Allocate(Device& device, size_t num_bytes);  // of a CUDA device
  // The same for gigabytes: in 2 MiB pages, cleared by the threads of the device's host pool.
  static Result<PinnedBuffer> AllocateLarge(Device& device, size_t num_bytes);

  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() const { return data_; }  // the same address on host and device
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool is_large_ = false;
};

}  // namespace inflight

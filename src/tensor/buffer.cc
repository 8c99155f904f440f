// SPDX-License-Identifier: Apache-2.0
#include "tensor/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "tensor/numa.h"

namespace inflight {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::Allocate(Device& device, std::string name, size_t num_bytes) {
  Buffer buffer;
  if (num_bytes == 0) return buffer;
  ASSIGN_OR_RETURN(buffer.share_, device.ledger().Take(name, num_bytes));
  if (device.kind() == DeviceKind::kCuda) {
    Result<void*> memory = cuda::Allocate(device.cuda().index, num_bytes);
    if (!memory.ok()) return memory.status().WithPrefix(name);
    buffer.data_ = static_cast<std::byte*>(*memory);
    buffer.size_ = num_bytes;
    buffer.gpu_ = device.cuda().index;
    return buffer;
  }
  void* data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return OutOfMemory(fmt::format("{}: cannot map {} bytes of memory", name, num_bytes));
  if (num_bytes >= kHugePageBytes) {
    madvise(data, num_bytes, MADV_HUGEPAGE);
    Interleave(data, num_bytes);
  }
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = num_bytes;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      share_(std::move(other.share_)),
      gpu_(other.gpu_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(share_, other.share_);
  std::swap(gpu_, other.gpu_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (gpu_ >= 0)
    cuda::Free(gpu_, data_);
  else
    munmap(data_, size_);
}

TensorView Buffer::View(DType dtype, Shape shape, size_t offset_bytes) const {
  const TensorView view{data_ + offset_bytes, dtype, shape};
  CHECK_LE(offset_bytes + view.num_bytes(), size_);
  return view;
}

Result<PinnedBuffer> PinnedBuffer::Allocate(Device& device, size_t num_bytes) {
  PinnedBuffer buffer;
  if (num_bytes == 0) return buffer;
  ASSIGN_OR_RETURN(void* const data, cuda::AllocatePinned(device.cuda().index, num_bytes));
  std::memset(data, 0, num_bytes);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = num_bytes;
  return buffer;
}

Result<PinnedBuffer> PinnedBuffer::AllocateLarge(Device& device, size_t num_bytes) {
  constexpr size_t kPageBytes = 4096;  // where the system has no larger ones to give
  PinnedBuffer buffer;
  if (num_bytes == 0) return buffer;
  void* const data =
      mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return OutOfMemory(fmt::format("cannot map {} bytes of host memory", num_bytes));
  madvise(data, num_bytes, MADV_HUGEPAGE);
  auto* const bytes = static_cast<std::byte*>(data);
  const auto num_parts = static_cast<int64_t>((num_bytes + kHugePageBytes - 1) / kHugePageBytes);
  device.cpu_pool().ParallelFor(num_parts, [&](int64_t i) {  // the first write takes the page
    const size_t begin = static_cast<size_t>(i) * kHugePageBytes;
    const size_t end = std::min(begin + kHugePageBytes, num_bytes);
    for (size_t at = begin; at < end; at += kPageBytes)
      *static_cast<volatile std::byte*>(bytes + at) = std::byte{0};
  });
  if (Status pinned = cuda::Pin(device.cuda().index, data, num_bytes); !pinned.ok()) {
    munmap(data, num_bytes);
    return pinned;
  }
  buffer.data_ = bytes;
  buffer.size_ = num_bytes;
  buffer.is_large_ = true;
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      is_large_(other.is_large_) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(is_large_, other.is_large_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  if (!is_large_) {
    cuda::FreePinned(data_);
    return;
  }
  cuda::Unpin(data_);
  munmap(data_, size_);
}

}  // namespace inflight

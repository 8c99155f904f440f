// SPDX-License-Identifier: Apache-2.0
#include "tensor/releasable_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "tensor/cuda_virtual_memory.h"
#include "tensor/numa.h"

namespace inflight {
namespace {

constexpr size_t kLargePageBytes = size_t{2} << 20;

Status SystemRefused(const std::string& name, const char* what, size_t num_bytes) {
  return OutOfMemory(fmt::format("{}: cannot {} {} bytes of memory", name, what, num_bytes));
}

}  // namespace

Result<std::shared_ptr<ReleasableMemory>> ReleasableMemory::Allocate(Device& device,
                                                                     std::string name,
                                                                     size_t num_bytes) {
  std::shared_ptr<ReleasableMemory> memory(
      new ReleasableMemory(device, std::move(name), num_bytes));
  RETURN_IF_ERROR(memory->Reserve());
  RETURN_IF_ERROR(memory->TakeBack());
  return memory;
}

ReleasableMemory::~ReleasableMemory() {
  if (data_ == nullptr) return;
  if (device_.kind() == DeviceKind::kCpu) {
    munmap(data_, mapped_bytes_);
    return;
  }
  if (is_there_) (void)Unmap();
  cuda::FreeAddresses(device_.cuda().index, data_, mapped_bytes_);
}

Status ReleasableMemory::Reserve() {
  if (size_ == 0) return Status::Ok();
  if (device_.kind() == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(const size_t granule, cuda::GranuleBytes(device_.cuda().index));
    mapped_bytes_ = (size_ + granule - 1) / granule * granule;
    ASSIGN_OR_RETURN(void* const data, cuda::ReserveAddresses(device_.cuda().index, mapped_bytes_));
    data_ = static_cast<std::byte*>(data);
    return Status::Ok();
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapped_bytes_ = (size_ + page - 1) / page * page;
  void* const data = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return SystemRefused(name_, "map", size_);
  if (mapped_bytes_ >= kLargePageBytes) {
    madvise(data, mapped_bytes_, MADV_HUGEPAGE);
    Interleave(data, mapped_bytes_);
  }
  data_ = static_cast<std::byte*>(data);
  return Status::Ok();
}

Status ReleasableMemory::Map() {
  if (device_.kind() == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(handle_, cuda::MapPages(device_.cuda().index, data_, mapped_bytes_));
    return Status::Ok();
  }
  if (mprotect(data_, mapped_bytes_, PROT_READ | PROT_WRITE) == 0) return Status::Ok();
  return SystemRefused(name_, "use", size_);
}

Status ReleasableMemory::Unmap() {
  if (device_.kind() == DeviceKind::kCuda)
    return cuda::UnmapPages(device_.cuda().index, data_, mapped_bytes_, handle_);
  if (mprotect(data_, mapped_bytes_, PROT_NONE) == 0 &&
      madvise(data_, mapped_bytes_, MADV_DONTNEED) == 0)
    return Status::Ok();
  return SystemRefused(name_, "give back", size_);
}

Status ReleasableMemory::Release() {
  if (!is_there_) return Status::Ok();
  if (size_ > 0) RETURN_IF_ERROR(Unmap());
  is_there_ = false;
  share_ = {};
  return Status::Ok();
}

Status ReleasableMemory::TakeBack() {
  if (is_there_) return Status::Ok();
  ASSIGN_OR_RETURN(MemoryShare share, device_.ledger().Take(name_, size_));
  if (size_ > 0) {
    if (const Status mapped = Map(); !mapped.ok()) return mapped.WithPrefix(name_);
  }
  share_ = std::move(share);
  is_there_ = true;
  return Status::Ok();
}

}  // namespace inflight

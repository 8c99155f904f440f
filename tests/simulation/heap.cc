// SPDX-License-Identifier: Apache-2.0
#include "simulation/heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace inflight::testing {

thread_local int64_t num_allocations = 0;

namespace {

thread_local uint64_t allocations_until_fault = 0;  // 0: none is to fail
thread_local bool has_fault_struck = false;
std::atomic<int64_t> num_live_bytes{0};

bool Strikes() {
  if (allocations_until_fault == 0 || --allocations_until_fault > 0) return false;
  has_fault_struck = true;
  return true;
}

void* Allocate(size_t size, size_t alignment) {
  ++num_allocations;
  if (Strikes()) return nullptr;
  void* const memory =
      alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
          ? std::malloc(size > 0 ? size : 1)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory != nullptr) {
    num_live_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory)),
                             std::memory_order_relaxed);
  }
  return memory;
}

void* AllocateOrThrow(size_t size, size_t alignment) {
  if (void* const memory = Allocate(size, alignment)) return memory;
  throw std::bad_alloc();
}

void Free(void* memory) {
  if (memory == nullptr) return;
  num_live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)),
                           std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

HeapFault::HeapFault(uint64_t nth) {
  allocations_until_fault = nth;
  has_fault_struck = false;
}

HeapFault::~HeapFault() { allocations_until_fault = 0; }

bool HeapFault::has_struck() const { return has_fault_struck; }

int64_t NumLiveBytes() { return num_live_bytes.load(std::memory_order_relaxed); }

}  // namespace inflight::testing

using inflight::testing::Allocate;
using inflight::testing::AllocateOrThrow;
using inflight::testing::Free;

void* operator new(size_t size) { return AllocateOrThrow(size, 1); }
void* operator new[](size_t size) { return AllocateOrThrow(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 1); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size, 1); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

// What protobuf's parser has made and not yet handed to its arena is lost where the arena finds no
// memory to note it.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {  // NOLINT: the sanitizer's name
  return "leak:google::protobuf::Arena::CreateInArenaStorage\n";
}

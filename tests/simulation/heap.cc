// SPDX-License-Identifier: Apache-2.0
#include "simulation/heap.h"

#include <malloc.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace inflight::testing {

thread_local int64_t num_allocations = 0;

namespace {

thread_local uint64_t allocations_until_fault = 0;  // 0: none is to fail
thread_local bool has_fault_struck = false;
std::atomic<int64_t> num_live_bytes{0};

// Of threads of one name.
std::atomic<int64_t> thread_faults_left{0};
std::atomic<int64_t> num_thread_faults{0};
std::array<char, 16> faulty_thread;  // is written while none is left

bool StrikesThread() {
  if (thread_faults_left.load(std::memory_order_acquire) <= 0) return false;
  std::array<char, 16> name{};
  if (pthread_getname_np(pthread_self(), name.data(), name.size()) != 0) return false;
  if (std::strcmp(name.data(), faulty_thread.data()) != 0) return false;
  if (thread_faults_left.fetch_sub(1) <= 0) return false;
  num_thread_faults.fetch_add(1);
  return true;
}

bool Strikes() {
  if (StrikesThread()) return true;
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

ThreadHeapFault::ThreadHeapFault(const char* thread, int64_t count) {
  std::strncpy(faulty_thread.data(), thread, faulty_thread.size() - 1);
  num_thread_faults = 0;
  thread_faults_left.store(count, std::memory_order_release);
}

ThreadHeapFault::~ThreadHeapFault() { thread_faults_left = 0; }

int64_t ThreadHeapFault::num_struck() const { return num_thread_faults; }

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

// SPDX-License-Identifier: Apache-2.0
// The program's operator new: memory of mimalloc's, and std::bad_alloc where there is none.
// Debian's mimalloc is compiled as C, whose own operator new cannot throw and ends the process. Its
// nothrow forms give null, and stay.
#include <mimalloc.h>

#include <cstddef>
#include <new>

namespace {

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return OrThrow(mi_malloc(size)); }
void* operator new[](size_t size) { return OrThrow(mi_malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return OrThrow(mi_malloc_aligned(size, static_cast<size_t>(alignment)));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return OrThrow(mi_malloc_aligned(size, static_cast<size_t>(alignment)));
}
void operator delete(void* memory) noexcept { mi_free(memory); }
void operator delete[](void* memory) noexcept { mi_free(memory); }
void operator delete(void* memory, size_t) noexcept { mi_free(memory); }
void operator delete[](void* memory, size_t) noexcept { mi_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { mi_free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { mi_free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { mi_free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { mi_free(memory); }

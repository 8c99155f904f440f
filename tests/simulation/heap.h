// SPDX-License-Identifier: Apache-2.0
// What a test program takes from the heap, and allocations that fail where it says so: operator new
// of a program that links heap.cc is replaced.
#pragma once

#include <cstdint>

namespace inflight::testing {

extern thread_local int64_t num_allocations;  // of the calling thread

// While it lives, of the calling thread's allocations the `nth` fails, and no other. 0: none does.
class HeapFault {
 public:
  explicit HeapFault(uint64_t nth);
  ~HeapFault();
  HeapFault(const HeapFault&) = delete;
  HeapFault& operator=(const HeapFault&) = delete;

  bool has_struck() const;
};

// While it lives, the next `count` allocations of threads of that name fail; other threads' do not.
// One at a time.
class ThreadHeapFault {
 public:
  ThreadHeapFault(const char* thread, int64_t count);
  ~ThreadHeapFault();
  ThreadHeapFault(const ThreadHeapFault&) = delete;
  ThreadHeapFault& operator=(const ThreadHeapFault&) = delete;

  int64_t num_struck() const;
};

int64_t NumLiveBytes();  // of all threads, from operator new

}  // namespace inflight::testing

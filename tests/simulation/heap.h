// SPDX-License-Identifier: Apache-2.0
// Allocations that fail where a simulation says so, and how much is allocated: operator new of a
// test program that links heap_faults.cc is replaced.
#pragma once

#include <cstdint>

namespace inflight::testing {

// While it lives, of the calling thread's allocations the `nth` fails, and no other. 0: none does.
class HeapFault {
 public:
  explicit HeapFault(uint64_t nth);
  ~HeapFault();
  HeapFault(const HeapFault&) = delete;
  HeapFault& operator=(const HeapFault&) = delete;

  bool has_struck() const;
};

int64_t NumLiveBytes();  // of all threads, from operator new

}  // namespace inflight::testing

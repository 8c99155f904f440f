// SPDX-License-Identifier: Apache-2.0
// Counts what a test program takes from the heap: its operator new is replaced (heap_count.cc).
#pragma once

#include <cstdint>

namespace inflight {

extern thread_local int64_t num_allocations;  // of the calling thread

}  // namespace inflight

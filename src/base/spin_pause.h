// SPDX-License-Identifier: Apache-2.0
// What a loop that polls tells the processor, so that the core's other thread has its turn.
#pragma once

namespace inflight {

inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace inflight

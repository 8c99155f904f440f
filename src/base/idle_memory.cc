// SPDX-License-Identifier: Apache-2.0
#include "base/idle_memory.h"

#include <utility>

// mimalloc's, where the program is linked with it.
extern "C" __attribute__((weak)) void mi_collect(bool force);

namespace inflight {
namespace {

using SteadyClock = std::chrono::steady_clock;

thread_local SteadyClock::time_point last_return;

}  // namespace

void ReturnFreeMemory() {
  if (mi_collect != nullptr) mi_collect(/*force=*/true);
  last_return = SteadyClock::now();
}

bool IsMemoryDue() { return SteadyClock::now() - last_return >= kMemoryInterval; }

// Once more after the last task: others may free of it what was still on its way.
void MemoryLook::Look(uint64_t num_done) {
  if (!IsMemoryDue()) return;
  const bool is_busy = num_done != std::exchange(num_done_, num_done);
  if (std::exchange(was_busy_, is_busy) || is_busy) ReturnFreeMemory();
}

}  // namespace inflight

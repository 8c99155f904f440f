// SPDX-License-Identifier: Apache-2.0
// Threads give back the memory that they hold free: now and then between two tasks, and when they
// have had none for a while.
//
// The server's allocator keeps for each thread what it freed, and what others freed of it until it
// allocates again: after a burst, an idle server would go on to hold the burst's memory. Doing so
// after each task instead would double the cost of requests of a megabyte.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace inflight {

inline constexpr std::chrono::milliseconds kMemoryInterval{1000};
inline constexpr std::chrono::milliseconds kMaxMemoryInterval{64'000};

// Of the calling thread. Nothing where the allocator is another one, as in tests and sanitizers.
void ReturnFreeMemory();

// Its last return is kMemoryInterval ago.
bool IsMemoryDue();

// wake.wait(lock, is_ready), the wait of a thread for its next task. Returns memory again after 1,
// 2, 4, ... seconds, since others may hold for a while what it allocated: a stream that nobody
// reads.
template <typename IsReady>
void WaitForTask(std::condition_variable& wake, std::unique_lock<std::mutex>& lock,
                 IsReady is_ready) {
  if (is_ready()) return;
  const auto return_memory = [&lock] {
    lock.unlock();
    ReturnFreeMemory();
    lock.lock();
  };
  if (IsMemoryDue()) return_memory();
  for (auto interval = kMemoryInterval; interval <= kMaxMemoryInterval; interval *= 2) {
    if (wake.wait_for(lock, interval, is_ready)) return;
    return_memory();
  }
  wake.wait(lock, is_ready);
}

// For a thread that looks now and then instead of waiting.
class MemoryLook {
 public:
  // `num_done`: a number that grows with what the thread does.
  void Look(uint64_t num_done);

 private:
  uint64_t num_done_ = 0;
  bool was_busy_ = false;
};

}  // namespace inflight

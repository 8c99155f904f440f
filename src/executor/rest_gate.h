// SPDX-License-Identifier: Apache-2.0
// How another thread brings a step loop to rest: no step is in flight, nobody holds slots or
// blocks, and no block's contents are known any more. The loop goes on taking requests, which wait,
// and ending those that are cancelled or late.
//
// Threads: Ask, Wait and GoOn are called by one thread at a time, Cancel and is_asked by any; asked
// and NoteRest by the loop's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "inflight/executor.h"

namespace inflight::executor {

class RestGate {
 public:
  void Ask(SleepMode mode) {
    const std::lock_guard lock(mutex_);
    rests_ = is_cancelled_ = false;
    asked_.store(++num_asked_ << kModeBits | static_cast<uint64_t>(mode),
                 std::memory_order_release);
  }
  // Until the loop rests; false where Cancel came first, or `is_over` says that it never will.
  bool Wait(const std::function<bool()>& is_over) {
    std::unique_lock lock(mutex_);
    while (!rests_ && !is_cancelled_ && !is_over())
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    return rests_ && !is_cancelled_;
  }
  // False where the loop rests already.
  bool Cancel() {
    const std::lock_guard lock(mutex_);
    if (rests_) return false;
    is_cancelled_ = true;
    changed_.notify_all();
    return true;
  }
  void GoOn() { asked_.store(0, std::memory_order_release); }
  bool is_asked() const { return asked_.load(std::memory_order_acquire) != 0; }

  struct Asked {
    uint64_t number = 0;  // of this rest; the loop may not have turned since the one before
    SleepMode mode = SleepMode::kKeep;
  };
  std::optional<Asked> asked() const {
    const uint64_t asked = asked_.load(std::memory_order_acquire);
    if (asked == 0) return std::nullopt;
    return Asked{.number = asked >> kModeBits,
                 .mode = static_cast<SleepMode>(asked & ((1U << kModeBits) - 1))};
  }
  void NoteRest() {
    const std::lock_guard lock(mutex_);
    rests_ = true;
    changed_.notify_all();
  }

 private:
  static constexpr int kModeBits = 8;
  std::atomic<uint64_t> asked_{0};  // 0: nobody asks; else the number, from 1 on, and the mode
  std::mutex mutex_;                // of all below
  uint64_t num_asked_ = 0;
  std::condition_variable changed_;
  bool rests_ = false;
  bool is_cancelled_ = false;
};

}  // namespace inflight::executor

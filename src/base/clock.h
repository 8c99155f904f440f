// SPDX-License-Identifier: Apache-2.0
// Monotonic time as an argument, so that tests set it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace inflight {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const = 0;  // monotonic; thread-safe

  // std::chrono::steady_clock, or what a ReplacedClock puts in its place.
  static Clock& System();
};

// Clock::System() as a point of std::chrono.
inline std::chrono::steady_clock::time_point SteadyNow() {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(Clock::System().NowNs()));
}

class ManualClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(std::memory_order_relaxed); }
  void AdvanceNs(int64_t ns) { now_ns_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_ns_{1};
};

// The time of the whole process while it lives: for simulations. One at a time, made before what
// asks for the time.
class ReplacedClock {
 public:
  explicit ReplacedClock(Clock& clock);
  ~ReplacedClock();
  ReplacedClock(const ReplacedClock&) = delete;
  ReplacedClock& operator=(const ReplacedClock&) = delete;
};

}  // namespace inflight

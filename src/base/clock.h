// SPDX-License-Identifier: Apache-2.0
// Monotonic time as an argument, so that tests set it.
#pragma once

#include <atomic>
#include <cstdint>

namespace inflight {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const = 0;  // monotonic; thread-safe

  static Clock& System();  // std::chrono::steady_clock
};

class ManualClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(std::memory_order_relaxed); }
  void AdvanceNs(int64_t ns) { now_ns_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_ns_{1};
};

}  // namespace inflight

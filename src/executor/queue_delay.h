// SPDX-License-Identifier: Apache-2.0
// Whether a waiting request may start now, or waits for others to start with it
// (max_queue_delay_microseconds: requests that arrive within it share a step).
//
// They start as soon as as many wait as can join, or the one that waits longest has waited `delay`.
// Once open, the gate stays open until nobody waits.
//
// Threads: step loop's thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace inflight::executor {

class QueueDelay {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  explicit QueueDelay(int64_t delay_ns) : delay_ns_(delay_ns) {}

  void Arrived(int64_t enqueued_ns) {
    if (delay_ns_ > 0) opens_ns_ = std::min(opens_ns_, enqueued_ns + delay_ns_);
  }

  bool MayStart(int64_t now_ns, int num_waiting, int num_free_places) {
    if (delay_ns_ <= 0) return true;
    if (num_waiting == 0) opens_ns_ = kNever;
    if (num_waiting >= num_free_places) opens_ns_ = std::min(opens_ns_, now_ns);
    return now_ns >= opens_ns_;
  }

  int64_t opens_ns() const { return opens_ns_; }  // kNever: nobody waits

 private:
  int64_t delay_ns_;
  int64_t opens_ns_ = kNever;
};

}  // namespace inflight::executor

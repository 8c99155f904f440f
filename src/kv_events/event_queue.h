// SPDX-License-Identifier: Apache-2.0
// Events on their way from the step loop to the thread that sends them.
//
// Threads: one adds, another takes. Adding never waits for more than a swap of two vectors.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "inflight/kv_events.h"
#include "kv_events/event_batch.h"

namespace inflight::kv_events {

class EventQueue {
 public:
  explicit EventQueue(size_t max_events) : max_events_(max_events) {}

  // True where nothing waited before. Where there is no room or no memory for an event, it and
  // those that wait are dropped, and Take says so.
  bool AddStored(const StoredKvBlock& block) noexcept;
  bool AddRemoved(uint64_t hash, KvMedium medium) noexcept;
  // All blocks are gone: what waits is told to nobody. True where nothing waited before.
  bool AddCleared() noexcept;
  // As if events had been dropped.
  void Drop() noexcept;

  // All that wait, in order, in place of what `events` held.
  struct Before {
    bool were_dropped = false;  // some before them were
    bool is_cleared = false;    // no block is held that was told before them
  };
  Before Take(std::vector<Event>* events);

 private:
  template <typename Fill>
  bool Add(const Fill& fill) noexcept;

  const size_t max_events_;
  std::mutex mutex_;
  std::vector<Event> events_;
  Before before_;
};

}  // namespace inflight::kv_events

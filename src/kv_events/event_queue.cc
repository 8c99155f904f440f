// SPDX-License-Identifier: Apache-2.0
#include "kv_events/event_queue.h"

#include <new>
#include <utility>

namespace inflight::kv_events {

template <typename Fill>
bool EventQueue::Add(const Fill& fill) noexcept {
  const std::lock_guard lock(mutex_);
  const bool was_empty = events_.empty() && !before_.is_cleared;
  try {
    if (events_.size() >= max_events_) throw std::bad_alloc();
    fill(events_.emplace_back());
  } catch (const std::bad_alloc&) {
    events_.clear();
    before_ = {.were_dropped = true, .is_cleared = true};
  }
  return was_empty;
}

bool EventQueue::AddStored(const StoredKvBlock& block) noexcept {
  return Add([&](Event& event) {
    event.is_stored = true;
    event.medium = block.medium;
    event.has_parent = block.has_parent;
    event.hash = block.hash;
    event.parent_hash = block.parent_hash;
    event.salt = block.salt;
    event.tokens.assign(block.tokens.begin(), block.tokens.end());
  });
}

bool EventQueue::AddRemoved(uint64_t hash, KvMedium medium) noexcept {
  return Add([&](Event& event) {
    event.hash = hash;
    event.medium = medium;
  });
}

void EventQueue::Drop() noexcept {
  const std::lock_guard lock(mutex_);
  events_.clear();
  before_ = {.were_dropped = true, .is_cleared = true};
}

bool EventQueue::AddCleared() noexcept {
  const std::lock_guard lock(mutex_);
  const bool was_empty = events_.empty() && !before_.is_cleared;
  events_.clear();
  before_.is_cleared = true;
  return was_empty;
}

EventQueue::Before EventQueue::Take(std::vector<Event>* events) {
  events->clear();
  const std::lock_guard lock(mutex_);
  events->swap(events_);
  return std::exchange(before_, {});
}

}  // namespace inflight::kv_events

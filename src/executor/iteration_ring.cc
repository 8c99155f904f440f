// SPDX-License-Identifier: Apache-2.0
#include "executor/iteration_ring.h"

#include <algorithm>

namespace inflight::executor {

IterationRing::IterationRing(size_t capacity)
    : capacity_(capacity), slots_(std::make_unique<SeqLock<Record>[]>(capacity)) {}

void IterationRing::Push(const ExecutorStats& stats) {
  if (capacity_ == 0) return;
  const int64_t number = num_pushed_.load(std::memory_order_relaxed);
  slots_[static_cast<size_t>(number) % capacity_].Store({.number = number, .stats = stats});
  num_pushed_.store(number + 1, std::memory_order_release);
}

void IterationRing::Take(std::vector<ExecutorStats>* records) {
  const std::lock_guard lock(mutex_);
  const int64_t end = num_pushed_.load(std::memory_order_acquire);
  const int64_t oldest = end - static_cast<int64_t>(capacity_);
  for (int64_t number = std::max(num_taken_, oldest); number < end; ++number) {
    const Record record = slots_[static_cast<size_t>(number) % capacity_].Load();
    if (record.number == number) records->push_back(record.stats);  // else it was replaced just now
  }
  num_taken_ = end;
}

}  // namespace inflight::executor

// SPDX-License-Identifier: Apache-2.0
// The newest records of the step loop for whoever reports them: when the reader is late, the oldest
// give way.
//
// Threads: one writer, which never waits, locks or allocates; any number of readers, which share
// one place in the ring.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/seqlock.h"
#include "inflight/executor.h"

namespace inflight::executor {

class IterationRing {
 public:
  // 0 keeps nothing.
  explicit IterationRing(size_t capacity);

  void Push(const ExecutorStats& stats);

  // Appends what was pushed since the last call and is still there, oldest first.
  void Take(std::vector<ExecutorStats>* records);

 private:
  struct Record {
    int64_t number = -1;  // of pushes before it; tells a record from the one that replaced it
    ExecutorStats stats;
  };

  const size_t capacity_;
  const std::unique_ptr<SeqLock<Record>[]> slots_;  // [capacity]
  std::atomic<int64_t> num_pushed_{0};

  std::mutex mutex_;
  int64_t num_taken_ = 0;  // guarded by mutex_; lost ones are counted too
};

}  // namespace inflight::executor

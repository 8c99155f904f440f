// SPDX-License-Identifier: Apache-2.0
// The newest records of request statistics for whoever reports them: when the reader is late, the
// oldest give way.
//
// Threads: any. A lock is held for as long as it takes to move a record or all of them, so that the
// step loop hardly ever waits for a reader.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "inflight/request_stats.h"

namespace inflight::executor {

class RequestStatsRing {
 public:
  // 0 keeps nothing.
  explicit RequestStatsRing(size_t capacity) : capacity_(capacity) {}

  void Push(RequestStatsPerIteration record);

  // Appends what was pushed since the last call and is still there, oldest first.
  void Take(std::vector<RequestStatsPerIteration>* records);

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::deque<RequestStatsPerIteration> records_;  // guarded by mutex_
};

}  // namespace inflight::executor

// SPDX-License-Identifier: Apache-2.0
#include "executor/request_stats_ring.h"

#include <iterator>
#include <utility>

namespace inflight::executor {

void RequestStatsRing::Push(RequestStatsPerIteration record) {
  if (capacity_ == 0) return;
  RequestStatsPerIteration dropped;  // given back without the lock
  const std::lock_guard lock(mutex_);
  if (records_.size() == capacity_) {
    dropped = std::move(records_.front());
    records_.pop_front();
  }
  records_.push_back(std::move(record));
}

void RequestStatsRing::Take(std::vector<RequestStatsPerIteration>* records) {
  std::deque<RequestStatsPerIteration> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(records_);
  }
  records->insert(records->end(), std::make_move_iterator(taken.begin()),
                  std::make_move_iterator(taken.end()));
}

}  // namespace inflight::executor

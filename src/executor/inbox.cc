// SPDX-License-Identifier: Apache-2.0
#include "executor/inbox.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace inflight::executor {

Inbox::~Inbox() { CHECK(ring_.empty()); }

bool Inbox::Push(std::unique_ptr<ActiveRequest> request) {
  int num_queued = num_queued_.load(std::memory_order_relaxed);
  do {
    if (num_queued >= max_queue_size_) return false;
  } while (!num_queued_.compare_exchange_weak(num_queued, num_queued + 1));
  // At most max_queue_size_ requests are in the ring, so it has room, and this thread sees that: it
  // acquired what LeftQueue released.
  CHECK(ring_.Push(request.release()));
  Wake();
  return true;
}

void Inbox::Cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
    has_cancels_.store(true, std::memory_order_seq_cst);
  }
  Wake();
}

void Inbox::Hold(RequestId id, bool is_held) {
  {
    const std::lock_guard lock(mutex_);
    holds_.push_back({id, is_held});
    has_holds_.store(true, std::memory_order_seq_cst);
  }
  Wake();
}

void Inbox::CancelAllAt(int64_t ns) {
  int64_t current = cancel_all_ns_.load();
  while (ns < current && !cancel_all_ns_.compare_exchange_weak(current, ns)) {
  }
  Wake();
}

void Inbox::Wake() {
  if (!is_sleeping_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard lock(mutex_);
  was_woken_ = true;
  wake_.notify_one();
}

std::unique_ptr<ActiveRequest> Inbox::Pop() {
  ActiveRequest* request = nullptr;
  ring_.Pop(&request);
  return std::unique_ptr<ActiveRequest>(request);
}

void Inbox::TakeCancels(std::vector<RequestId>* ids) {
  const std::lock_guard lock(mutex_);
  ids->swap(cancels_);
  has_cancels_.store(false, std::memory_order_seq_cst);
}

void Inbox::TakeHolds(std::vector<HoldNews>* holds) {
  const std::lock_guard lock(mutex_);
  holds->swap(holds_);
  has_holds_.store(false, std::memory_order_seq_cst);
}

void Inbox::WaitForNews(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  is_sleeping_.store(true, std::memory_order_seq_cst);
  if (IsEmpty()) {
    wake_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return was_woken_; });
  }
  was_woken_ = false;
  is_sleeping_.store(false, std::memory_order_seq_cst);
}

}  // namespace inflight::executor

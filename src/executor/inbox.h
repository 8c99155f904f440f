// SPDX-License-Identifier: Apache-2.0
// What other threads hand to the step loop: new requests, cancels, holds, the wish to stop; the
// place where an idle loop sleeps, too. No call waits for the loop, and the loop locks only when
// there is something to take.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/mpsc_ring.h"
#include "executor/sequence.h"

namespace inflight::executor {

// From here on the request is held, or goes on.
struct HoldNews {
  RequestId id = 0;
  bool is_held = false;
  bool operator==(const HoldNews&) const = default;
};

class Inbox {
 public:
  explicit Inbox(int max_queue_size) : max_queue_size_(max_queue_size), ring_(RingSize()) {}
  ~Inbox();  // the loop has taken everything by then

  // Any thread.
  // False: the queue is full, and the request with its stream is gone.
  bool Push(std::unique_ptr<ActiveRequest> request);
  void Cancel(RequestId id);
  void Hold(RequestId id, bool is_held);
  void CancelAllAt(int64_t ns);  // the earliest call counts
  void Wake();
  int num_queued() const { return num_queued_.load(std::memory_order_relaxed); }
  int max_queue_size() const { return max_queue_size_; }
  bool is_sleeping() const { return is_sleeping_.load(std::memory_order_seq_cst); }

  // Step loop's thread.
  std::unique_ptr<ActiveRequest> Pop();                   // null when there is none
  bool all_popped() const { return ring_.all_popped(); }  // false: a push is under way
  // Releases the slots of what was popped before to whoever is counted in by this.
  void LeftQueue() { num_queued_.fetch_sub(1, std::memory_order_release); }
  bool has_cancels() const { return has_cancels_.load(std::memory_order_seq_cst); }
  void TakeCancels(std::vector<RequestId>* ids);  // swaps; `ids` was empty
  bool has_holds() const { return has_holds_.load(std::memory_order_seq_cst); }
  void TakeHolds(std::vector<HoldNews>* holds);  // the same, in their order
  int64_t cancel_all_ns() const { return cancel_all_ns_.load(std::memory_order_relaxed); }
  void WaitForNews(int64_t timeout_ns);  // returns at once when there is something to take

 private:
  size_t RingSize() const { return static_cast<size_t>(max_queue_size_); }
  bool IsEmpty() const { return ring_.empty() && !has_cancels() && !has_holds(); }

  const int max_queue_size_;
  MpscRing<ActiveRequest*> ring_;
  std::atomic<int> num_queued_{0};  // pushed, and LeftQueue not yet called
  std::atomic<bool> has_cancels_{false};
  std::atomic<bool> has_holds_{false};
  std::atomic<int64_t> cancel_all_ns_{kNever};

  std::mutex mutex_;
  std::vector<RequestId> cancels_;        // guarded by mutex_
  std::vector<HoldNews> holds_;           // guarded by mutex_
  bool was_woken_ = false;                // guarded by mutex_
  std::atomic<bool> is_sleeping_{false};  // the loop waits on wake_, or is about to
  std::condition_variable wake_;
};

}  // namespace inflight::executor

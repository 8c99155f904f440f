// SPDX-License-Identifier: Apache-2.0
// Requests that wait for an instance: priority levels, sizes and time-outs of
// docs/reference/repositories.md.
//
//   level 1 is served first; 0 and levels beyond the last are the default level. There are only
//   those levels at which something waits, and those that have a policy
//   within a level: first those in time, in order of arrival, then those that a DELAY policy moved
//   behind because they waited too long
//   requests leave in batches by the rules of batch_rules.h
//
// Threads: all methods are thread-safe; Take, WaitForBatch and RejectUntilClosed block.
// Errors: Add gives kUnavailable when the level is full. A request whose time is over under a
// REJECT policy leaves through `on_expired`: when its time is over while a thread is in
// RejectUntilClosed, and at the next Add or Take in any case.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/core/request.h"
#include "serving/instances/batch_rules.h"
#include "serving/sequences/queued_request.h"

namespace inflight::serving {

class RequestQueue {
 public:
  using OnExpired = std::function<void(QueuedRequest)>;

  // A thread that takes requests, for as long as it is asked to.
  class Taker {
    friend class RequestQueue;
    bool is_leaving_ = false;
  };

  RequestQueue(const ::inference::ModelConfig& config, Clock& clock, OnExpired on_expired);

  // Takes `item` over unless it fails.
  Status Add(QueuedRequest& item);
  // What is to be executed together next; none once closed and empty, or once `taker` is to leave
  // (null: it stays).
  std::vector<QueuedRequest> Take(const Taker* taker = nullptr);
  // The same in two steps, for threads that need more than requests: false where Take gives none;
  // none where another thread took them, their time was over, or more are waited for.
  bool WaitForBatch(const Taker* taker = nullptr);
  std::vector<QueuedRequest> TryTake();
  // What waits is left to the others.
  void Leave(Taker& taker);
  void Close();

  // Whether a policy rejects what waited too long, so that somebody should run the other.
  bool rejects_in_time() const;
  void RejectUntilClosed();

 private:
  static constexpr int64_t kNever = INT64_MAX;

  struct Waiting {
    QueuedRequest item;
    int64_t deadline_ns = 0;  // 0 = none
    int64_t queued_ns = 0;
    bool is_taken = false;  // about to be dropped
  };
  struct Level {
    ::inference::ModelQueuePolicy policy;
    bool is_permanent = false;
    std::deque<Waiting> in_time;
    std::deque<Waiting> delayed;
  };

  Level& LevelOfLocked(const Request& request);
  void DropEmptyLevelsLocked();
  int64_t DeadlineOf(const Level& level, const Request& request) const;
  bool HasRequestLocked() const;
  bool WaitReadyLocked(std::unique_lock<std::mutex>& lock, const Taker* taker);
  BatchBuilder BuildLocked(std::vector<Waiting*>* taken);
  std::vector<QueuedRequest> PopLocked();
  std::vector<QueuedRequest> TakeExpiredLocked();
  // kNever where none ends; `rejecting_only`: of those that a policy would reject.
  int64_t FirstDeadlineLocked(bool rejecting_only) const;
  void Expire(std::vector<QueuedRequest> expired) const;

  Clock& clock_;
  const OnExpired on_expired_;
  const BatchRules rules_;
  const ::inference::ModelQueuePolicy default_policy_;
  const uint64_t num_levels_;
  const uint64_t default_level_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable deadline_changed_;
  int64_t watched_ns_ = kNever;  // the deadline that RejectUntilClosed waits for
  bool is_closed_ = false;
  bool wakes_all_ = false;  // of the threads in WaitForBatch any may be the one that can go on
  std::map<uint64_t, Level> levels_;
};

}  // namespace inflight::serving

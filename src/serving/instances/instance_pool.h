// SPDX-License-Identifier: Apache-2.0
// The instances of a model: as many threads as its instance groups count, each of which executes
// one batch at a time (docs/reference/repositories.md), and the queues that they take from.
// Instances come and go while the others run.
//
//   Add -> queue -> instance
//   Add -> sequence table -> queue -> instance
//
// There is one queue for all; with sequence batching each instance has its own, since a sequence
// stays where it began.
//
// With a rate limiter an instance takes a batch once it has the resources of its group; until then
// its requests are in the queue.
//
// Threads: all methods are thread-safe. The last user may be one of the instances.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "inflight/status.h"
#include "model_config.pb.h"
#include "serving/core/model.h"
#include "serving/instances/rate_limiter.h"
#include "serving/instances/request_queue.h"

namespace inflight::serving {

class InstancePool {
 public:
  // What an instance does with a batch. It keeps the function, also beyond the pool's end.
  using Execute = std::function<void(std::vector<QueuedRequest>)>;
  // What a new instance does before it takes requests: `execute` executes one there.
  using WarmUp = std::function<Status(const std::function<void(QueuedRequest)>& execute)>;

  // Of a complete configuration; without instances until SetGroups. `limiter` null: none is
  // limited.
  InstancePool(const ::inference::ModelConfig& config, Clock& clock, RateLimiter* limiter,
               Execute execute);
  // No request is left.
  ~InstancePool();

  // Takes `item` over unless it fails.
  Status Add(QueuedRequest& item);

  // Adds the instances that `groups` count beyond those there are, and ends those that they do not
  // count; what differs in its resources is another instance. Requests wait, run and end as if
  // nothing happened: an instance that goes first ends what it runs, which is waited for, and with
  // sequence batching the sequences that it has, which is not.
  // An error of `warm_up`, or an exception (no more threads): all is as it was.
  Status SetGroups(const InstanceGroups& groups, const WarmUp& warm_up);

  // At least 1; those that have sequences still to end do not count.
  int size() const { return size_; }
  // Some need resources.
  bool is_limited() const { return is_limited_; }

 private:
  struct Instance;
  struct Sequences;
  struct Running {
    std::shared_ptr<Instance> instance;
    std::thread thread;
  };

  std::shared_ptr<Instance> Make(const ::inference::ModelRateLimiter& wanted);
  std::vector<Running> Start(const std::vector<std::shared_ptr<Instance>>& added) const;
  void End(Running ended);
  void JoinEnded();

  const ::inference::ModelConfig config_;
  Clock& clock_;
  RateLimiter* const limiter_;
  const Execute execute_;
  std::shared_ptr<RequestQueue> queue_;   // null: each instance has its own
  std::shared_ptr<Sequences> sequences_;  // null without sequence batching
  std::vector<std::thread> watchers_;     // of time-outs and idle sequences
  std::mutex mutex_;                      // guards what follows
  std::vector<Running> instances_;
  std::vector<Running> leaving_;  // they have sequences, or had
  std::atomic<int> size_ = 0;
  std::atomic<bool> is_limited_ = false;
};

}  // namespace inflight::serving

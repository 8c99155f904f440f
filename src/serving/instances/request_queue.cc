// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/request_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/idle_memory.h"
#include "base/thread_boundary.h"

namespace inflight::serving {
namespace {

using ::inference::ModelQueuePolicy;

bool Rejects(const ModelQueuePolicy& policy) {
  return policy.default_timeout_microseconds() > 0 &&
         policy.timeout_action() == ModelQueuePolicy::REJECT;
}

}  // namespace

RequestQueue::RequestQueue(const ::inference::ModelConfig& config, Clock& clock,
                           OnExpired on_expired)
    : clock_(clock),
      on_expired_(std::move(on_expired)),
      rules_(BatchRulesOf(config)),
      default_policy_(config.dynamic_batching().default_queue_policy()),
      num_levels_(std::max<uint64_t>(config.dynamic_batching().priority_levels(), 1)),
      default_level_(std::clamp<uint64_t>(config.dynamic_batching().default_priority_level(), 1,
                                          num_levels_)) {
  levels_[default_level_] = {.policy = default_policy_, .is_permanent = true};
  for (const auto& [level, policy] : config.dynamic_batching().priority_queue_policy()) {
    if (level >= 1 && level <= num_levels_) {
      levels_[level] = {.policy = policy, .is_permanent = true};
    }
  }
}

Status RequestQueue::Add(QueuedRequest& item) {
  std::vector<QueuedRequest> expired;
  Status status;
  bool wakes_all = false;
  {
    std::lock_guard lock(mutex_);
    wakes_all = wakes_all_;
    expired = TakeExpiredLocked();
    Level& level = LevelOfLocked(item.request);
    const uint64_t max_size = level.policy.max_queue_size();
    if (is_closed_) {
      status = Unavailable("the model is being unloaded and takes no more requests");
    } else if (max_size > 0 && level.in_time.size() + level.delayed.size() >= max_size) {
      status = Unavailable("Exceeds maximum queue size").WithReason(Reason::kQueueFull);
    } else {
      const int64_t deadline_ns = DeadlineOf(level, item.request);
      level.in_time.push_back({std::move(item), deadline_ns, clock_.NowNs()});
      if (Rejects(level.policy) && deadline_ns < watched_ns_) deadline_changed_.notify_one();
    }
  }
  if (status.ok() && wakes_all) wake_.notify_all();
  if (status.ok() && !wakes_all) wake_.notify_one();
  Expire(std::move(expired));
  return status;
}

bool RequestQueue::HasRequestLocked() const {
  return std::any_of(levels_.begin(), levels_.end(), [](const auto& level) {
    return !level.second.in_time.empty() || !level.second.delayed.empty();
  });
}

// Offers what waits, in order; `taken` may be null.
BatchBuilder RequestQueue::BuildLocked(std::vector<Waiting*>* taken) {
  BatchBuilder builder(rules_);
  for (auto& [number, level] : levels_) {
    for (std::deque<Waiting>* from : {&level.in_time, &level.delayed}) {
      for (Waiting& waiting : *from) {
        const auto answer = builder.Offer(waiting.item.request, waiting.queued_ns);
        if (answer == BatchBuilder::Answer::kFull) return builder;
        if (answer == BatchBuilder::Answer::kTaken && taken != nullptr) taken->push_back(&waiting);
      }
    }
  }
  return builder;
}

// Until a batch is to be executed now. False: closed and empty, or the thread is to leave.
bool RequestQueue::WaitReadyLocked(std::unique_lock<std::mutex>& lock, const Taker* taker) {
  const auto leaves = [taker] { return taker != nullptr && taker->is_leaving_; };
  while (true) {
    WaitForTask(wake_, lock, [&] { return is_closed_ || leaves() || HasRequestLocked(); });
    if (leaves()) return false;
    if (is_closed_) return HasRequestLocked();
    if (!rules_.is_batched) return true;  // each goes by itself
    const BatchBuilder builder = BuildLocked(nullptr);
    const int64_t now_ns = clock_.NowNs();
    if (builder.NumReady(now_ns)) return true;
    // Without the one whose time is over, what is left may go together.
    const int64_t deadline_ns = FirstDeadlineLocked(/*rejecting_only=*/false);
    if (deadline_ns <= now_ns) return true;
    const int64_t until_ns = std::min(builder.wait_until_ns(), deadline_ns);
    wake_.wait_for(lock, std::chrono::nanoseconds(until_ns - now_ns));
  }
}

// What is ready, or once closed all that would go together. Those behind it are somebody else's.
std::vector<QueuedRequest> RequestQueue::PopLocked() {
  std::vector<Waiting*> taken;
  const BatchBuilder builder = BuildLocked(&taken);
  taken.resize(builder.NumReady(clock_.NowNs()).value_or(is_closed_ ? builder.num_taken() : 0));
  std::vector<QueuedRequest> batch;
  for (Waiting* waiting : taken) {
    batch.push_back(std::move(waiting->item));
    waiting->is_taken = true;
  }
  for (auto& [number, level] : levels_) {
    for (std::deque<Waiting>* from : {&level.in_time, &level.delayed}) {
      while (!from->empty() && from->front().is_taken) from->pop_front();
      if (!rules_.has_sequences) continue;  // those taken stand in front
      std::erase_if(*from, [](const Waiting& waiting) { return waiting.is_taken; });
    }
  }
  DropEmptyLevelsLocked();
  if (!rules_.is_batched || !HasRequestLocked()) return batch;
  if (wakes_all_)
    wake_.notify_all();
  else
    wake_.notify_one();
  return batch;
}

std::vector<QueuedRequest> RequestQueue::Take(const Taker* taker) {
  while (true) {
    std::vector<QueuedRequest> expired;
    std::vector<QueuedRequest> batch;
    {
      std::unique_lock lock(mutex_);
      const bool has_batch = WaitReadyLocked(lock, taker);
      expired = TakeExpiredLocked();
      if (has_batch) batch = PopLocked();
      if (!has_batch && expired.empty()) return {};
    }
    Expire(std::move(expired));
    if (!batch.empty()) return batch;
  }
}

bool RequestQueue::WaitForBatch(const Taker* taker) {
  std::unique_lock lock(mutex_);
  wakes_all_ = true;
  return WaitReadyLocked(lock, taker);
}

std::vector<QueuedRequest> RequestQueue::TryTake() {
  std::vector<QueuedRequest> expired;
  std::vector<QueuedRequest> batch;
  {
    const std::lock_guard lock(mutex_);
    expired = TakeExpiredLocked();
    batch = PopLocked();
  }
  Expire(std::move(expired));
  return batch;
}

void RequestQueue::Leave(Taker& taker) {
  {
    std::lock_guard lock(mutex_);
    taker.is_leaving_ = true;
  }
  wake_.notify_all();  // all look again: it may have been woken for a request
}

void RequestQueue::Close() {
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  wake_.notify_all();
  deadline_changed_.notify_all();
}

bool RequestQueue::rejects_in_time() const {
  return Rejects(default_policy_) ||
         std::any_of(levels_.begin(), levels_.end(),
                     [](const auto& level) { return Rejects(level.second.policy); });
}

void RequestQueue::RejectUntilClosed() {
  std::unique_lock lock(mutex_);
  while (!is_closed_) {
    watched_ns_ = FirstDeadlineLocked(/*rejecting_only=*/true);
    if (watched_ns_ == kNever) {
      deadline_changed_.wait(lock);
      continue;
    }
    const int64_t left_ns = watched_ns_ - clock_.NowNs();
    if (left_ns > 0) {
      deadline_changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    RunTurn("instances", [&] {
      std::vector<QueuedRequest> expired = TakeExpiredLocked();
      lock.unlock();
      Expire(std::move(expired));
    });
    if (!lock.owns_lock()) lock.lock();
  }
}

int64_t RequestQueue::FirstDeadlineLocked(bool rejecting_only) const {
  int64_t first_ns = kNever;
  for (const auto& [number, level] : levels_) {
    if (rejecting_only && !Rejects(level.policy)) continue;
    for (const Waiting& waiting : level.in_time) {
      if (waiting.deadline_ns != 0) first_ns = std::min(first_ns, waiting.deadline_ns);
    }
  }
  return first_ns;
}

RequestQueue::Level& RequestQueue::LevelOfLocked(const Request& request) {
  const uint64_t asked = request.priority;
  const uint64_t level = asked == 0 || asked > num_levels_ ? default_level_ : asked;
  return levels_.try_emplace(level, Level{.policy = default_policy_}).first->second;
}

void RequestQueue::DropEmptyLevelsLocked() {
  std::erase_if(levels_, [](const auto& level) {
    return !level.second.is_permanent && level.second.in_time.empty() &&
           level.second.delayed.empty();
  });
}

// A request may only shorten the time that the policy gives.
int64_t RequestQueue::DeadlineOf(const Level& level, const Request& request) const {
  uint64_t timeout_us = level.policy.default_timeout_microseconds();
  if (timeout_us == 0) return 0;
  if (level.policy.allow_timeout_override() && request.timeout_us > 0)
    timeout_us = std::min(timeout_us, request.timeout_us);
  constexpr uint64_t kMaxUs = uint64_t{1} << 50;  // 35 years: the sum below stays in range
  return clock_.NowNs() + static_cast<int64_t>(std::min(timeout_us, kMaxUs)) * 1000;
}

std::vector<QueuedRequest> RequestQueue::TakeExpiredLocked() {
  const int64_t now_ns = clock_.NowNs();
  std::vector<QueuedRequest> expired;
  for (auto& [number, level] : levels_) {
    const auto is_over = [&](const Waiting& waiting) {
      return waiting.deadline_ns != 0 && waiting.deadline_ns <= now_ns;
    };
    if (level.policy.default_timeout_microseconds() == 0 ||
        std::none_of(level.in_time.begin(), level.in_time.end(), is_over)) {
      continue;
    }
    const bool delays = level.policy.timeout_action() == ModelQueuePolicy::DELAY;
    std::deque<Waiting> in_time;
    for (Waiting& waiting : level.in_time) {
      if (!is_over(waiting)) {
        in_time.push_back(std::move(waiting));
      } else if (delays) {
        level.delayed.push_back(std::move(waiting));
      } else {
        expired.push_back(std::move(waiting.item));
      }
    }
    level.in_time = std::move(in_time);
  }
  if (!expired.empty()) DropEmptyLevelsLocked();
  return expired;
}

void RequestQueue::Expire(std::vector<QueuedRequest> expired) const {
  for (QueuedRequest& item : expired) on_expired_(std::move(item));
}

}  // namespace inflight::serving

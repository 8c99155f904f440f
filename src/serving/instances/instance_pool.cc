// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/instance_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"
#include "serving/core/validate.h"
#include "serving/sequences/sequence_table.h"

namespace inflight::serving {
namespace {

using ::inference::ModelConfig;
using ::inference::ModelRateLimiter;

// Of each instance that the groups count, what it needs to execute.
std::vector<ModelRateLimiter> LimitsOf(const InstanceGroups& groups, bool has_limiter) {
  std::vector<ModelRateLimiter> limits;
  for (const auto& group : groups) {
    if (group.passive()) continue;
    const bool is_limited = has_limiter && group.rate_limiter().resources_size() > 0;
    for (int i = 0; i < group.count(); ++i) {
      limits.push_back(is_limited ? group.rate_limiter() : ModelRateLimiter());
    }
  }
  if (limits.empty()) limits.emplace_back();
  return limits;
}

void Expire(const QueuedRequest& item) {
  item.sender->Reject(Unavailable("Request timeout expired"), FailureReason::kRejected);
}

void GiveUp(const QueuedRequest& item, const Status& status) {
  const bool is_cancelled = status.code() == StatusCode::kCancelled;
  item.sender->Reject(status, is_cancelled ? FailureReason::kCanceled : FailureReason::kRejected);
}

// How often what waits for a sequence's end is looked at: as often as one may fall idle, and often
// enough for a client that cancels.
std::chrono::microseconds TickPeriod(const ModelConfig& config) {
  using std::chrono::microseconds;
  constexpr uint64_t kMinUs = 1000;
  constexpr uint64_t kMaxUs = 100'000;
  const uint64_t idle_us = config.sequence_batching().max_sequence_idle_microseconds();
  return microseconds(std::clamp(idle_us, kMinUs, kMaxUs));
}

// `keeps` lives as long as the thread, which may outlive the pool by its last step.
template <typename Kept>
std::thread StartThread(const std::string& model, std::shared_ptr<Kept> keeps,
                        void (*work)(Kept&)) {
  return std::thread([name = "i:" + model, keeps = std::move(keeps), work] {
    NameThisThread(name);
    work(*keeps);
  });
}

void JoinOrDetach(std::thread& thread) {
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace

struct InstancePool::Instance {
  void Serve();
  void ExecuteOne(QueuedRequest item);

  std::string wanted;                             // the rate limiter's settings; "" = nothing
  std::unique_ptr<RateLimiter::Instance> limits;  // null: it needs nothing
  std::shared_ptr<RequestQueue> queue;
  Execute execute;
  RequestQueue::Taker taker;
  int number = 0;  // in the sequence table
  std::atomic<bool> has_ended = false;
};

struct InstancePool::Sequences {
  Sequences(const ModelConfig& config, Clock& clock)
      : table(config, clock, GiveUp), period(TickPeriod(config)) {}

  void TickUntilClosed();
  void Close();

  SequenceTable table;
  const std::chrono::microseconds period;

 private:
  std::mutex mutex_;
  std::condition_variable closes_;
  bool is_closed_ = false;
};

void InstancePool::Instance::Serve() {
  if (limits == nullptr) {
    for (bool is_open = true; is_open;) {
      RunTurn("instances", [&] {
        std::vector<QueuedRequest> batch = queue->Take(&taker);
        is_open = !batch.empty();
        if (is_open) execute(std::move(batch));
      });
    }
  } else {
    while (queue->WaitForBatch(&taker) && limits->Acquire()) {
      bool has_executed = false;
      RunTurn("instances", [&] {
        std::vector<QueuedRequest> batch = queue->TryTake();
        has_executed = !batch.empty();
        if (has_executed) execute(std::move(batch));
      });
      limits->Release(has_executed);
    }
  }
  has_ended = true;
}

// On the caller's thread, before its own is started.
void InstancePool::Instance::ExecuteOne(QueuedRequest item) {
  std::vector<QueuedRequest> batch;
  batch.push_back(std::move(item));
  if (limits != nullptr) limits->Acquire();
  execute(std::move(batch));
  if (limits != nullptr) limits->Release(/*has_executed=*/true);
}

void InstancePool::Sequences::TickUntilClosed() {
  std::unique_lock lock(mutex_);
  while (!closes_.wait_for(lock, period, [this] { return is_closed_; })) {
    lock.unlock();
    RunTurn("instances", [this] { table.Tick(); });
    lock.lock();
  }
}

void InstancePool::Sequences::Close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  closes_.notify_all();
}

InstancePool::InstancePool(const ModelConfig& config, Clock& clock, RateLimiter* limiter,
                           Execute execute)
    : config_(config), clock_(clock), limiter_(limiter), execute_(std::move(execute)) {
  if (config.has_sequence_batching()) {
    sequences_ = std::make_shared<Sequences>(config, clock);
    watchers_.push_back(StartThread<Sequences>(config.name(), sequences_,
                                               [](Sequences& each) { each.TickUntilClosed(); }));
    return;
  }
  queue_ = std::make_shared<RequestQueue>(config, clock, Expire);
  if (!queue_->rejects_in_time()) return;
  watchers_.push_back(StartThread<RequestQueue>(
      config.name(), queue_, [](RequestQueue& queue) { queue.RejectUntilClosed(); }));
}

InstancePool::~InstancePool() {
  if (queue_ != nullptr) queue_->Close();
  if (sequences_ != nullptr) sequences_->Close();
  for (auto* running : {&instances_, &leaving_}) {
    for (Running& each : *running) {
      each.instance->queue->Close();
      if (each.instance->limits != nullptr) each.instance->limits->Close();
    }
  }
  for (auto* running : {&instances_, &leaving_}) {
    for (Running& each : *running) JoinOrDetach(each.thread);
  }
  for (std::thread& thread : watchers_) JoinOrDetach(thread);
}

Status InstancePool::Add(QueuedRequest& item) {
  if (sequences_ != nullptr) return sequences_->table.Add(item);
  return WithRequestId(queue_->Add(item), item.request);
}

Status InstancePool::SetGroups(const InstanceGroups& groups, const WarmUp& warm_up) {
  const std::lock_guard lock(mutex_);
  JoinEnded();
  std::vector<ModelRateLimiter> missing = LimitsOf(groups, limiter_ != nullptr);
  const size_t size = missing.size();
  const bool is_limited = std::any_of(missing.begin(), missing.end(), [](const auto& wanted) {
    return wanted.resources_size() > 0;
  });
  const auto stays = [&](const Running& each) {
    const auto wanted = std::find_if(missing.begin(), missing.end(), [&](const auto& limits) {
      return limits.SerializeAsString() == each.instance->wanted;
    });
    if (wanted == missing.end()) return false;
    missing.erase(wanted);
    return true;
  };
  std::vector<bool> are_staying;
  for (const Running& each : instances_) are_staying.push_back(stays(each));

  std::vector<std::shared_ptr<Instance>> added;
  for (const ModelRateLimiter& wanted : missing) {
    added.push_back(Make(wanted));
    RETURN_IF_ERROR(
        warm_up([&](QueuedRequest item) { added.back()->ExecuteOne(std::move(item)); }));
  }
  std::vector<Running> now = Start(added);
  std::vector<Running> going;
  for (size_t i = 0; i < instances_.size(); ++i) {
    (are_staying[i] ? now : going).push_back(std::move(instances_[i]));
  }
  instances_ = std::move(now);
  size_ = static_cast<int>(size);
  is_limited_ = is_limited;
  for (Running& each : going) End(std::move(each));
  return Status::Ok();
}

std::shared_ptr<InstancePool::Instance> InstancePool::Make(const ModelRateLimiter& wanted) {
  auto instance = std::make_shared<Instance>();
  instance->wanted = wanted.SerializeAsString();
  if (wanted.resources_size() > 0) instance->limits = limiter_->Register(wanted);
  instance->queue =
      queue_ != nullptr ? queue_ : std::make_shared<RequestQueue>(config_, clock_, Expire);
  instance->execute = execute_;
  return instance;
}

// All or none.
std::vector<InstancePool::Running> InstancePool::Start(
    const std::vector<std::shared_ptr<Instance>>& added) const {
  std::vector<Running> started;
  started.reserve(added.size());
  try {
    for (const auto& instance : added) {
      started.push_back({instance, StartThread<Instance>(config_.name(), instance,
                                                         [](Instance& each) { each.Serve(); })});
    }
  } catch (...) {
    for (Running& each : started) {
      each.instance->queue->Leave(each.instance->taker);
      if (each.instance->limits != nullptr) each.instance->limits->Close();
      each.thread.join();
    }
    throw;
  }
  if (sequences_ == nullptr) return started;
  for (const auto& instance : added) {
    instance->number = sequences_->table.AddInstance([queue = instance->queue](QueuedRequest item) {
      // It has neither a size nor a time-out, and is open while its slots are taken.
      if (const Status status = queue->Add(item); !status.ok()) GiveUp(item, status);
    });
  }
  return started;
}

void InstancePool::End(Running ended) {
  Instance& instance = *ended.instance;
  if (sequences_ != nullptr) {
    const int number = instance.number;
    auto close = [queue = instance.queue] { queue->Close(); };
    leaving_.push_back(std::move(ended));
    sequences_->table.RemoveInstance(number, std::move(close));
    return;
  }
  instance.queue->Leave(instance.taker);
  if (instance.limits != nullptr) instance.limits->Close();
  ended.thread.join();
}

void InstancePool::JoinEnded() {
  std::erase_if(leaving_, [](Running& each) {
    if (!each.instance->has_ended) return false;
    each.thread.join();
    return true;
  });
}

}  // namespace inflight::serving

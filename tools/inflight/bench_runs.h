// SPDX-License-Identifier: Apache-2.0
// What the benches of generation share: a log of steps, waiting for many requests, spreads.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <span>
#include <vector>

#include "inflight/executor.h"

namespace inflight::tool {

// One entry per step of the loop; filled on its thread without allocating.
class StepLog : public StepObserver {
 public:
  struct Step {
    int64_t step_ns;
    int64_t host_ns, launch_ns;  // ExecutorStats
    int64_t idle_ns;             // of the device, before the step
    int num_rows, num_tokens;
    // Of a step that is not the last: tokens of prompts, and what it yielded in all.
    int num_prefill_tokens;
    int64_t num_yielded;
  };

  void OnStep(int64_t step_ns, int num_rows, int num_tokens) override {
    // What is published after the observer ran belongs to the entry before.
    if (size_ > 0 && executor_ != nullptr) {
      const ExecutorStats stats = executor_->stats();
      steps_[size_ - 1].host_ns = stats.last_host_ns;
      steps_[size_ - 1].launch_ns = stats.last_launch_ns;
      steps_[size_ - 1].idle_ns = stats.last_idle_ns;
      steps_[size_ - 1].num_prefill_tokens = stats.num_context_tokens;
      steps_[size_ - 1].num_yielded = stats.tokens_decoded - tokens_decoded_;
      tokens_decoded_ = stats.tokens_decoded;
    }
    if (size_ < steps_.size())
      steps_[size_++] = {step_ns, 0, 0, 0, num_rows, num_tokens, num_tokens - num_rows, 0};
  }

  void Watch(const Executor* executor) { executor_ = executor; }
  void Reset() {
    size_ = 0;
    if (executor_ != nullptr) tokens_decoded_ = executor_->stats().tokens_decoded;
  }
  std::span<const Step> steps() const { return {steps_.data(), size_}; }

 private:
  const Executor* executor_ = nullptr;
  std::vector<Step> steps_ = std::vector<Step>(1 << 16);
  size_t size_ = 0;
  int64_t tokens_decoded_ = 0;
};

class CountdownSink : public ResponseSink {
 public:
  explicit CountdownSink(int count) : left_(count) { times_.reserve(static_cast<size_t>(count)); }
  void OnResponse(Response response) override {
    if (!response.is_final) return;
    const std::lock_guard lock(mutex_);
    if (!response.status.ok()) status_ = response.status;
    times_.push_back(response.times);
    if (--left_ == 0) wake_.notify_all();
  }
  Status Wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return left_ == 0; });
    return status_;
  }
  // Of the requests that ended; after Wait.
  const std::vector<RequestTimes>& times() const { return times_; }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  int left_;
  Status status_;
  std::vector<RequestTimes> times_;
};

struct Spread {
  double low = 0, median = 0, high = 0;  // 10th, 50th, 90th percentile
};

inline Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  };
  return {at(0.1), at(0.5), at(0.9)};
}

}  // namespace inflight::tool

// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/rank_thread.h"

#include <fmt/format.h>

#include <utility>

#include "base/thread_boundary.h"
#include "base/thread_name.h"

namespace inflight::executor::cuda {

RankThread::RankThread(int number, std::unique_ptr<CudaRank> rank,
                       std::function<void(const Status&)> failed)
    : rank_(std::move(rank)),
      gpu_memory_bytes_(rank_->info().gpu_memory_bytes),
      failed_(std::move(failed)),
      thread_([this, number] { Run(number); }) {}

RankThread::~RankThread() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void RankThread::Tell(const RankCall& call) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(call);
  }
  wake_.notify_one();
}

Status RankThread::WaitForAll() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_.empty() && !is_busy_; });
  return status_;
}

Status RankThread::status() {
  const std::lock_guard lock(mutex_);
  return status_;
}

void RankThread::Run(int number) {
  NameThisThread(fmt::format("rank {}", number));
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const RankCall call = waiting_.front();
    waiting_.pop_front();
    is_busy_ = true;
    if (status_.ok()) {
      lock.unlock();
      Status done =
          StatusOf([&] { return Do(call, *rank_).WithPrefix(fmt::format("rank {}", number)); });
      if (!done.ok()) RunTurn("rank", [&] { failed_(done); });
      lock.lock();
      status_ = std::move(done);
    }
    is_busy_ = false;
    if (waiting_.empty()) idle_.notify_all();
  }
}

}  // namespace inflight::executor::cuda

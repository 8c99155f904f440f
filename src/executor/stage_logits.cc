// SPDX-License-Identifier: Apache-2.0
#include "executor/stage_logits.h"

#include <new>

#include "base/no_memory_left.h"
#include "base/thread_name.h"

namespace inflight::executor {

StageLogits::StageLogits(comm::Communicator& pipeline, Device& device)
    : pipeline_(pipeline), stream_(device), thread_([this] { Run(); }) {}

StageLogits::~StageLogits() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t StageLogits::Await(const TensorView& rows) {
  int64_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    awaited_.push_back(rows);
    count = ++num_awaited_;
  }
  changed_.notify_all();
  return count;
}

Status StageLogits::Wait(int64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_received_ >= count || !failed_.ok(); });
  return num_received_ >= count ? Status::Ok() : failed_;
}

void StageLogits::Run() {
  NameThisThread("stage-logits");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !awaited_.empty(); });
    if (awaited_.empty() || !failed_.ok()) {
      if (is_ending_) return;
      awaited_.clear();  // nothing more comes
      continue;
    }
    const TensorView rows = awaited_.front();
    awaited_.pop_front();
    lock.unlock();
    Status received;
    try {
      received = pipeline_.Receive(rows, pipeline_.size() - 1, stream_);
    } catch (const std::bad_alloc&) {
      received = NoMemoryLeft();
      pipeline_.Abort(received);
    }
    lock.lock();
    if (received.ok()) ++num_received_;
    if (!received.ok() && failed_.ok()) failed_ = received;
    changed_.notify_all();
  }
}

}  // namespace inflight::executor

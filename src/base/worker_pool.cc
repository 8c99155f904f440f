// SPDX-License-Identifier: Apache-2.0
#include "base/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/check.h"
#include "base/idle_memory.h"
#include "base/log.h"
#include "base/thread_name.h"

namespace inflight {
namespace {

std::atomic<PoolPump*> current_pump{nullptr};

}  // namespace

WorkerPool::WorkerPool(int num_threads, const std::string& thread_name)
    : max_long_running_(std::max(1, num_threads - 1)), pump_(current_pump.load()) {
  CHECK_GT(num_threads, 0);
  if (pump_ != nullptr) {
    const std::lock_guard lock(pump_->mutex_);
    pump_->pools_.push_back(this);
    return;
  }
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this, thread_name] {
      NameThisThread(thread_name);
      Run();
    });
  }
}

WorkerPool::~WorkerPool() {
  if (pump_ != nullptr) {
    {
      std::unique_lock lock(mutex_);
      while (HasNext()) RunNext(lock);
    }
    const std::lock_guard pump_lock(pump_->mutex_);
    std::erase(pump_->pools_, this);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<WorkerPool> WorkerPool::MakeShared(int num_threads,
                                                   const std::string& thread_name) {
  return {new WorkerPool(num_threads, thread_name), [](WorkerPool* pool) {
            if (pool->IsOwnThread()) {
              std::thread([pool] { delete pool; }).detach();
            } else {
              delete pool;
            }
          }};
}

bool WorkerPool::IsOwnThread() const {
  return std::ranges::any_of(threads_, [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
}

void WorkerPool::Post(Task task, Length length, const void* owner) {
  std::list<Task> posted;
  posted.push_back(std::move(task));
  {
    const std::lock_guard lock(mutex_);
    const auto line = std::ranges::find(long_lines_, owner, &Line::owner);
    if (length == Length::kShort) {
      tasks_.splice(tasks_.end(), posted);
    } else if (line != long_lines_.end()) {
      line->tasks.splice(line->tasks.end(), posted);
    } else {
      long_lines_.push_back({.owner = owner, .tasks = std::move(posted)});
    }
  }
  wake_.notify_one();
}

WorkerPool::Task WorkerPool::TakeShort() {
  if (MayTakeLong()) ++short_in_a_row_;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

WorkerPool::Task WorkerPool::TakeLong() {
  short_in_a_row_ = 0;
  ++num_long_running_;
  const auto line = long_lines_.begin();
  Task task = std::move(line->tasks.front());
  line->tasks.pop_front();
  if (line->tasks.empty()) {
    long_lines_.erase(line);
  } else {
    long_lines_.splice(long_lines_.end(), long_lines_, line);
  }
  return task;
}

void WorkerPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    WaitForTask(wake_, lock, [this] { return stopping_ || HasNext(); });
    // Whoever runs a long one takes what is left of them.
    if (!HasNext()) return;
    RunNext(lock);
  }
}

void WorkerPool::RunNext(std::unique_lock<std::mutex>& lock) {
  const bool is_long = tasks_.empty() || (MayTakeLong() && short_in_a_row_ >= kShortInARow);
  Task task = is_long ? TakeLong() : TakeShort();
  lock.unlock();
  try {
    task();
  } catch (const std::exception& e) {  // such as bad_alloc; who posted it has to say so to others
    logging::Error("a task ended by an exception", {{"error", e.what()}});
  }
  task = nullptr;
  lock.lock();
  if (is_long) --num_long_running_;
}

PoolPump::PoolPump() { CHECK(current_pump.exchange(this) == nullptr); }

PoolPump::~PoolPump() {
  current_pump.store(nullptr);
  CHECK(pools_.empty());
}

bool PoolPump::RunOne(uint64_t choice) {
  WorkerPool* const pool = Next(choice);
  if (pool == nullptr) return false;
  std::unique_lock lock(pool->mutex_);
  pool->RunNext(lock);
  return true;
}

WorkerPool* PoolPump::Next(uint64_t choice) {
  const std::lock_guard lock(mutex_);
  const size_t first = pools_.empty() ? 0 : choice % pools_.size();
  for (size_t i = 0; i < pools_.size(); ++i) {
    WorkerPool* const pool = pools_[(first + i) % pools_.size()];
    const std::lock_guard pool_lock(pool->mutex_);
    if (pool->HasNext()) return pool;
  }
  return nullptr;
}

}  // namespace inflight

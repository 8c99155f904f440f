// SPDX-License-Identifier: Apache-2.0
#include "base/worker_pool.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "base/idle_memory.h"
#include "base/log.h"
#include "base/thread_name.h"

namespace inflight {

WorkerPool::WorkerPool(int num_threads, const std::string& thread_name)
    : max_long_running_(std::max(1, num_threads - 1)) {
  CHECK_GT(num_threads, 0);
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this, thread_name] {
      NameThisThread(thread_name);
      Run();
    });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Post(std::function<void()> task, Length length) {
  {
    const std::lock_guard lock(mutex_);
    (length == Length::kShort ? tasks_ : long_tasks_).push_back(std::move(task));
  }
  wake_.notify_one();
}

void WorkerPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    WaitForTask(wake_, lock, [this] { return stopping_ || !tasks_.empty() || MayTakeLong(); });
    const bool is_long = tasks_.empty();
    if (is_long && !MayTakeLong()) return;  // whoever runs a long one takes what is left of them
    auto& tasks = is_long ? long_tasks_ : tasks_;
    std::function<void()> task = std::move(tasks.front());
    tasks.pop_front();
    if (is_long) ++num_long_running_;
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
}

}  // namespace inflight

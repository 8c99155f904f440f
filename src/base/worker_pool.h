// SPDX-License-Identifier: Apache-2.0
// Threads that run posted functions: the text pool of the server (tokenizing long prompts, building
// responses).
//
// Tasks are short or long. Short ones go first, and where a pool has several threads one of them is
// for short ones alone: they never wait for all the long ones that there are.
//
// Threads: Post is thread-safe. Tasks of one pool run in any order and in parallel. Destruction
// runs what was posted, then joins. What a task throws is logged, and the thread goes on. Not for
// kernels: those run on tensor/cpu_pool.h, whose regions are fork-join.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace inflight {

class WorkerPool {
 public:
  WorkerPool(int num_threads, const std::string& thread_name);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  enum class Length { kShort, kLong };
  void Post(std::function<void()> task, Length length = Length::kShort);

 private:
  void Run();
  bool MayTakeLong() const { return !long_tasks_.empty() && num_long_running_ < max_long_running_; }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_, long_tasks_;
  const int max_long_running_;
  int num_long_running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace inflight

// SPDX-License-Identifier: Apache-2.0
// Threads that run posted functions: the text pool of the server (tokenizing long prompts, building
// responses).
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

  void Post(std::function<void()> task);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace inflight

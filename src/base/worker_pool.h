// SPDX-License-Identifier: Apache-2.0
// Threads that run posted functions: the text pool of the server (tokenizing long prompts, building
// responses).
//
// Tasks are short or long. Where a pool has several threads one of them is for short ones alone:
// they never wait for all the long ones that there are. Short ones go first, but a long one that
// may run waits for kShortInARow of them at most. Long ones of several owners go in turns.
//
// Threads: Post is thread-safe. Tasks of one pool run in parallel. Destruction
// runs what was posted, then joins. What a task throws is logged, and the thread goes on. Not for
// kernels: those run on tensor/cpu_pool.h, whose regions are fork-join.
// Memory: Post alone allocates; where it throws bad_alloc, nothing was posted.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace inflight {

class PoolPump;

class WorkerPool {
 public:
  // Without threads where a PoolPump stands in for them.
  WorkerPool(int num_threads, const std::string& thread_name);
  ~WorkerPool();
  // Shared by what posts to it: where a task of the pool has the last reference, and lets go of it
  // on a thread of the pool, that thread is joined by another.
  static std::shared_ptr<WorkerPool> MakeShared(int num_threads, const std::string& thread_name);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  static constexpr int kShortInARow = 16;

  bool has_threads() const { return pump_ == nullptr; }

  enum class Length { kShort, kLong };
  // `owner` is compared alone: long tasks of one are in line behind each other.
  void Post(std::function<void()> task, Length length = Length::kShort,
            const void* owner = nullptr);

 private:
  friend class PoolPump;

  using Task = std::function<void()>;
  struct Line {
    const void* owner;
    std::list<Task> tasks;  // never empty
  };

  bool IsOwnThread() const;
  void Run();
  void RunNext(std::unique_lock<std::mutex>& lock);  // HasNext()
  bool HasNext() const { return !tasks_.empty() || MayTakeLong(); }
  bool MayTakeLong() const { return !long_lines_.empty() && num_long_running_ < max_long_running_; }
  Task TakeShort();
  Task TakeLong();

  std::mutex mutex_;
  std::condition_variable wake_;
  // Lists, whose elements change places without memory (libstdc++'s deque takes some to be moved).
  std::list<Task> tasks_;
  std::list<Line> long_lines_;  // whose turn it is first
  int short_in_a_row_ = 0;      // while a long one could have run
  const int max_long_running_;
  int num_long_running_ = 0;
  bool stopping_ = false;
  PoolPump* const pump_;
  std::vector<std::thread> threads_;
};

// Stands in for the threads of all pools that are made while it lives: what is posted to them waits
// until somebody calls RunOne, and runs there. For simulations, whose order of events is their own.
// One at a time; outlives the pools.
// Threads: RunOne is called by one at a time.
class PoolPump {
 public:
  PoolPump();
  ~PoolPump();
  PoolPump(const PoolPump&) = delete;
  PoolPump& operator=(const PoolPump&) = delete;

  // Runs the next task of one of the pools that have any: `choice` says of which. False: none has.
  bool RunOne(uint64_t choice);
  bool HasTask() { return Next(0) != nullptr; }

 private:
  friend class WorkerPool;

  WorkerPool* Next(uint64_t choice);  // null: none has any

  std::mutex mutex_;
  std::vector<WorkerPool*> pools_;  // in the order in which they were made
};

}  // namespace inflight

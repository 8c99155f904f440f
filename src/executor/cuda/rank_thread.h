// SPDX-License-Identifier: Apache-2.0
// A rank on a GPU that is not the leader's, and the thread that drives it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "executor/cuda_backend.h"

namespace inflight::executor::cuda {

// Does what it is told in that order. The first error ends it: nothing is done any more.
class RankThread {
 public:
  using Task = std::function<Status(CudaRank& rank)>;

  RankThread(int number, std::unique_ptr<CudaRank> rank, std::function<void(const Status&)> failed);
  ~RankThread();  // does what it was told before
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  void Tell(Task task);
  Status WaitForAll();  // that it was told; its first error
  Status status();

 private:
  void Run(int number);

  std::unique_ptr<CudaRank> rank_;
  const std::function<void(const Status&)> failed_;  // once, on this thread
  std::mutex mutex_;                                 // of all below
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Task> waiting_;
  bool is_busy_ = false;
  bool is_ending_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace inflight::executor::cuda

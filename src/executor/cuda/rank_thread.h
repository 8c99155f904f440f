// SPDX-License-Identifier: Apache-2.0
// A rank on a GPU that is not the leader's, and the thread that drives it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "executor/rank_call.h"

namespace inflight::executor::cuda {

class RankThread : public FollowerRanks {
 public:
  RankThread(int number, std::unique_ptr<CudaRank> rank, std::function<void(const Status&)> failed);
  ~RankThread() override;  // does what it was told before
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  void Tell(const RankCall& call) override;  // what it points to stays until it is done
  Status WaitForAll() override;              // that it was told
  Status status() override;
  Status DoNow(const RankCall& call) override { return Do(call, *rank_); }
  int64_t gpu_memory_bytes() const override { return gpu_memory_bytes_; }
  int size() const override { return 1; }
  Result<ReleasableParts> releasable() const override { return rank_->releasable(); }

 private:
  void Run(int number);

  std::unique_ptr<CudaRank> rank_;
  const int64_t gpu_memory_bytes_;
  const std::function<void(const Status&)> failed_;  // once, on this thread
  std::mutex mutex_;                                 // of all below
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<RankCall> waiting_;
  bool is_busy_ = false;
  bool is_ending_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace inflight::executor::cuda

// SPDX-License-Identifier: Apache-2.0
// The ranks on GPUs that are other processes, as their leader tells them (rank_call.h): one message
// for all, in the order of calls. What is answered is answered in that order.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "comm/rendezvous.h"
#include "executor/rank_call.h"

namespace inflight::executor {

// Says once that a group of processes is over, from a thread of its own: kernels that wait for a
// rank that is gone have to be ended by somebody who does not wait for them.
class GroupWatch {
 public:
  GroupWatch(const comm::Group& group, std::function<void(const Status&)> is_over);

 private:
  std::jthread thread_;
};

class RemoteRanks : public FollowerRanks {
 public:
  // `group` outlives it. `failed` is called once, from any thread. The last of `model` goes at the
  // end: with it the others give the model up.
  RemoteRanks(comm::Group& group, int64_t gpu_memory_bytes,
              std::function<void(const Status&)> failed, std::shared_ptr<void> model);

  void Tell(const RankCall& call) override;
  Status WaitForAll() override;
  Status status() override { return group_.status(); }
  Status DoNow(const RankCall& call) override;
  int64_t gpu_memory_bytes() const override { return gpu_memory_bytes_; }
  int size() const override { return group_.size() - 1; }

 private:
  void Send(const RankCall& call);  // under mutex_
  Status Receive();                 // one answer of each rank; under mutex_
  void ReceiveAll();                // under mutex_

  comm::Group& group_;
  const int64_t gpu_memory_bytes_;
  const std::shared_ptr<void> model_;
  std::mutex mutex_;  // of all below, and of what is sent and received
  RankCallWriter writer_;
  int num_awaited_ = 0;  // answers that WaitForAll has not returned yet
  Status first_;         // of those that have come
  GroupWatch watch_;
};

// An answer of a rank, and what its leader reads of it. kDataLoss where it is none.
std::string AnswerOf(const Status& status);
Status StatusOfAnswer(std::string_view answer);

}  // namespace inflight::executor
